import type { FailedCondition, Problem, Violation } from "./api.gen.js";

/** A code of the closed set of problems; `/docs/errors` of a service says what to do about each. */
export type ProblemCode = Problem["code"];

/** The service has refused a request. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";

  constructor(
    /** The service's answer (RFC 9457). */
    readonly problem: Problem,
  ) {
    super(
      `${problem.where ? problem.where + ": " : ""}${problem.detail || problem.title} (${problem.code})` +
        (problem.violations ?? []).map((v) => `\n  ${v.where}${v.pointer}: ${v.message}; ${v.fix}`).join(""),
    );
  }

  get code(): ProblemCode {
    return this.problem.code;
  }
  /** The HTTP status. */
  get status(): number {
    return this.problem.status;
  }
  /** The place in the request, such as `events[3].data`. */
  get where(): string | undefined {
    return this.problem.where;
  }
  /** With `schema-violation`: the places in the data, as JSON Pointers, each with a rule and a fix. */
  get violations(): readonly Violation[] {
    return this.problem.violations ?? [];
  }
  /** With `rejected`: the code of the command's rule. */
  get reason(): string | undefined {
    return this.problem.reason;
  }
  /** With `version-conflict`: the stream's version. */
  get currentVersion(): number | undefined {
    return this.problem.currentVersion;
  }
  /** With `condition-failed`: the conditions that failed, and the events that they match. */
  get failedCondition(): FailedCondition | undefined {
    return this.problem.failedCondition;
  }
  /** Names the request in the service's log. */
  get requestId(): string | undefined {
    return this.problem.requestId;
  }
}

/** No answer has arrived, after all retries. What was requested may have happened. `cause` has the last error. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

/** Turns an answer with an error status into an error. An answer without a problem comes from a proxy. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const text = await response.text().catch(() => "");
  return problemOfText(response.status, text);
}

export function problemOfText(status: number, text: string): ProblemError {
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.code === "string") return new ProblemError(problem);
  } catch {
    // It is not a problem of the service.
  }
  const code: ProblemCode =
    status === 401 ? "unauthenticated" : status === 403 ? "forbidden" : status === 404 ? "not-found" : status === 429 ? "too-many-requests" : status >= 502 ? "unavailable" : status >= 500 ? "internal" : "invalid-request";
  return new ProblemError({ type: "about:blank", title: `The answer has status ${status}`, status, code, detail: text.slice(0, 200) });
}

/** Reports whether a repetition cannot help. */
export function isPermanent(error: unknown): boolean {
  return error instanceof ProblemError && error.status < 500 && error.status !== 429;
}
