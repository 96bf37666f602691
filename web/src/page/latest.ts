// Wishes of which only the newest counts.
type Attempt = (work: () => Promise<void>) => Promise<void>;

export class Latest {
  private turn = 0;

  constructor(private readonly attempt: Attempt) {}

  /** Finds something and takes it; what an earlier wish finds after a newer one began, its error included, is dropped. */
  async run<T>(find: () => Promise<T>, take: (found: T) => Promise<void> | void): Promise<void> {
    const mine = (this.turn += 1);
    await this.attempt(async () => {
      try {
        const found = await find();
        if (mine === this.turn) {
          await take(found);
        }
      } catch (error) {
        if (mine === this.turn) {
          throw error;
        }
      }
    });
  }
}
