/** Texts of definitions that were changed and not saved, by tenant and projection. They live as long as the page does. */
export const drafts = new Map<string, string>();

addEventListener("beforeunload", (event) => drafts.size > 0 && event.preventDefault());
