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

// With a `wait` it is a question that may take long: it is asked when nothing new has come for so many milliseconds, and
// the next wish ends the one that is on its way.
export class Latest {
  #now = null; // on its way
  #next = null;
  #wait = 0;
  #timer = 0;
  #stop = null;

  constructor(job, { wait = 0 } = {}) {
    this.job = job;
    this.#wait = wait;
  }

  // `done(answer, body)` is called for the newest wish; with `overtaken` also for one that a newer has overtaken on its way.
  send(body, done, { overtaken = false } = {}) {
    this.#next = { body, done, overtaken };
    clearTimeout(this.#timer);
    if (!this.#wait) return this.#go();
    this.#stop?.abort();
    this.#timer = setTimeout(() => this.#go(), this.#wait);
  }

  // Ask again later what is not answered yet: something else needs the machine.
  postpone() {
    const wish = this.#next ?? this.#now;
    if (wish) this.send(wish.body, wish.done);
  }

  cancel() {
    this.#stop?.abort();
    clearTimeout(this.#timer);
    this.#next = null;
  }

  async #go() {
    if (this.#now || !this.#next) return;
    const { body, done, overtaken } = (this.#now = this.#next);
    this.#next = null;
    this.#stop = new AbortController();
    const answer = await ask(this.job, body, this.#stop.signal);
    this.#now = null;
    if (!this.#next || overtaken) done(answer, body);
    if (this.#next && !this.#wait) this.#go();
  }
}
