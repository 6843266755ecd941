/** An execution's wall clock: stands still while it is suspended, and can be ended from outside. As `gyre.env.wall`. */

export class WallClock {
  /** Why its end ends the execution. */
  reason = "wall";
  private endMs = 0;
  private pausedAtMs: number | null = null;
  private readonly over = new AbortController();
  private timer: NodeJS.Timeout | undefined;
  private wake: (() => void)[] = [];

  /** Aborted when its time is up, or it was ended from outside. */
  get cut(): AbortSignal {
    return this.over.signal;
  }

  start(wallS: number): void {
    const nowMs = performance.now();
    this.endMs = nowMs + wallS * 1000;
    if (this.pausedAtMs !== null) this.pausedAtMs = nowMs;
    this.arm();
  }

  pause(): void {
    this.pausedAtMs ??= performance.now();
    clearTimeout(this.timer);
  }

  resume(): void {
    if (this.pausedAtMs === null) return;
    this.endMs += performance.now() - this.pausedAtMs;
    this.pausedAtMs = null;
    this.arm();
    for (const wake of this.wake.splice(0)) wake();
  }

  expire(reason: string): void {
    if (this.over.signal.aborted) return;
    this.resume();
    this.reason = reason;
    this.over.abort();
  }

  leftMs(): number {
    return this.endMs - (this.pausedAtMs ?? performance.now());
  }

  /** Returns when it is not paused. */
  async going(): Promise<void> {
    if (this.pausedAtMs !== null) await new Promise<void>((resolve) => this.wake.push(resolve));
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  private arm(): void {
    clearTimeout(this.timer);
    if (this.endMs && this.pausedAtMs === null) {
      this.timer = setTimeout(() => this.expire("wall"), Math.max(0, this.leftMs()));
    }
  }
}
