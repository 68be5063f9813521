// Requests. Of several wishes for the same thing one is on its way and only the newest waits: answers are never stale,
// and a slider cannot flood the server.

export async function ask(job, body, signal) {
  const answer = await fetch(`/api/${job}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  }).catch(() => null);
  return read(answer);
}

export async function look(path, options) {
  return read(await fetch(path, options).catch(() => null));
}

async function read(answer) {
  if (!answer) return { error: "The workbench does not answer; is it still running? Start it again with: softknee workbench" };
  try {
    return await answer.json();
  } catch {
    return { error: `The workbench answered with an error (${answer.status}).` };
  }
}

export class Latest {
  #busy = false;
  #next = null;
  #wait = 0;
  #timer = 0;
  #stop = null; // of a request that may take minutes: the next wish ends it

  constructor(job, { wait = 0 } = {}) {
    this.job = job;
    this.#wait = wait;
  }

  // `done(answer, body)` is called for the newest wish; with `overtaken` also for one that a newer has overtaken on its way.
  send(body, done, { overtaken = false } = {}) {
    this.#next = { body, done, overtaken };
    this.#stop?.abort();
    clearTimeout(this.#timer);
    if (this.#wait) this.#timer = setTimeout(() => this.#go(), this.#wait);
    else this.#go();
  }

  cancel() {
    this.#stop?.abort();
    clearTimeout(this.#timer);
    this.#next = null;
  }

  async #go() {
    if (this.#busy || !this.#next) return;
    const { body, done, overtaken } = this.#next;
    this.#next = null;
    this.#busy = true;
    this.#stop = body.longer ? new AbortController() : null;
    const answer = await ask(this.job, body, this.#stop?.signal);
    this.#busy = false;
    if (!this.#next || overtaken) done(answer, body);
    if (this.#next) this.#go();
  }
}
