// Questions to the replicas. All addresses are relative, so the page works behind `tollgate page` and other prefixes.

const LONGEST_WAIT = 15_000;

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  const address = query.size ? `${path}?${query}` : path;
  let answer;
  try {
    answer = await fetch(address, {
      headers: { accept: "application/json" },
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(LONGEST_WAIT),
    });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Refused(0, late ? "no answer within 15 seconds" : "cannot connect: check that the server or `tollgate page` runs");
  }
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, text.trim() || `answered ${answer.status}`);
  return JSON.parse(text);
}

// Asks every given replica. Returns the answers and the failures, each with its replica.
export async function askAll(replicas, path, parametersOf = () => ({})) {
  const answers = [];
  const failures = [];
  await Promise.all(replicas.map(async (replica) => {
    try {
      const answer = await ask(replica.path + path, parametersOf(replica));
      answers.push({ replica: replica.name, ...answer });
    } catch (error) {
      failures.push({ replica: replica.name, status: error.status, reason: error.message });
    }
  }));
  const byName = (one, other) => (one.replica < other.replica ? -1 : 1);
  return { answers: answers.sort(byName), failures: failures.sort(byName) };
}

export async function replicas() {
  const answer = await ask("replicas");
  return answer.replicas;
}
