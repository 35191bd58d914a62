import type { Definition } from "../../../client/typescript/src/index.js";

/** A definition as it was read, and the revision of its projection; none of a projection that does not exist yet. */
export interface Read {
  definition: Definition;
  revision: number | undefined;
}

/** A text that was changed and not saved. */
export interface Draft {
  text: string;
  /** What it was made from. */
  base: Read;
  /** A text that was put aside for what others have saved. */
  aside?: string;
}

/** The drafts of definitions, by tenant and projection. They live as long as the page does. */
export const drafts = new Map<string, Draft>();

addEventListener("beforeunload", (event) => drafts.size > 0 && event.preventDefault());
