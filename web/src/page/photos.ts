// Where photos come from: samples of this folder, files of the user, the camera.
import { button, fill, h } from "./dom.ts";
import { Latest } from "./latest.ts";
import { served } from "./served.ts";
import type { Photo } from "./spotlight.ts";

const LARGEST = 2048; // pixels of the longer side that are kept
const STRETCHED = 20; // times that the longer side may be as long as the shorter
const CREDIT = "Photo: Jesper K. Pedersen, from KPhotoAlbum, CC BY-SA 4.0";
const SAMPLES = [
  { file: "beach.jpg", name: "A day at the beach", credit: CREDIT },
  { file: "dog.jpg", name: "A dog in the forest", credit: CREDIT },
  { file: "pool.jpg", name: "A game of pool", credit: CREDIT },
  { file: "rabbit.jpg", name: "A rabbit on the grass", credit: CREDIT },
];

const photos = served("photos/", true);

/** Buttons that give photos to `use`. */
export class PhotoSource {
  readonly element = h("div", { class: "panel ask" });
  private readonly stage = h("div", { class: "camera", hidden: true });
  private readonly credit = h("p", { class: "muted" });
  private stream: MediaStream | null = null;
  private readonly latest: Latest;
  private films = 0;

  constructor(
    private readonly attempt: (work: () => Promise<void>) => Promise<void>,
    private readonly use: (photo: Photo) => Promise<void>,
  ) {
    this.latest = new Latest(attempt);
    const file = h("input", {
      type: "file",
      accept: "image/*",
      class: "unseen",
      id: "photo-file",
      "aria-label": "Your photo",
      tabindex: -1,
      onchange: () => this.upload(file),
    });
    fill(
      this.element,
      h(
        "div",
        { class: "row" },
        SAMPLES.map((_, n) => button(SAMPLES[n].name, () => void this.sample(n))),
        file,
        button("Your photo …", () => file.click()),
        button("Camera", () => void this.film()),
      ),
      this.stage,
      this.credit,
    );
  }

  async sample(n: number): Promise<void> {
    const { file, credit } = SAMPLES[n];
    await this.give(async () => createImageBitmap(new Blob([await photos.bytes(file)])), credit);
  }

  private upload(input: HTMLInputElement): void {
    const file = input.files?.[0];
    input.value = "";
    if (!file) {
      return;
    }
    const read = () =>
      createImageBitmap(file).catch(() => {
        throw new Error(`${file.name} is not an image that this browser can read`);
      });
    void this.give(read, file.name);
  }

  private async film(): Promise<void> {
    await this.attempt(async () => {
      const mine = (this.films += 1);
      this.stop();
      if (!navigator.mediaDevices) {
        throw new Error("this browser offers no camera to pages that are not from this machine or https");
      }
      const found = navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      const stream = await found.catch((error: Error) => {
        throw new Error(`the camera cannot be used: ${error.message}`);
      });
      if (mine !== this.films || !this.element.isConnected) {
        stopped(stream); // the user has asked again, or left the view
        return;
      }
      this.stream = stream;
      addEventListener("hashchange", () => this.stop(), { once: true });
      const video = h("video", { autoplay: true, playsinline: true, muted: true });
      video.srcObject = this.stream;
      const take = () => createImageBitmap(video).finally(() => this.stop());
      const shoot = () => void this.give(take, "From the camera");
      const shutter = button("Take the photo", shoot, { class: "main", disabled: true });
      video.addEventListener("loadeddata", () => (shutter.disabled = false)); // before it there is no picture
      fill(
        this.stage,
        video,
        h(
          "div",
          { class: "row" },
          shutter,
          button("Stop", () => this.stop()),
        ),
      );
      this.stage.hidden = false;
    });
  }

  private stop(): void {
    stopped(this.stream);
    this.stream = null;
    this.stage.hidden = true;
    fill(this.stage);
  }

  /** Hands on the photo that was wished for last. */
  private give(find: () => Promise<ImageBitmap>, credit: string): Promise<void> {
    return this.latest.run(find, async (bitmap) => {
      const [width, height] = [bitmap.width, bitmap.height];
      if (Math.max(width, height) > STRETCHED * Math.min(width, height)) {
        throw new Error(`one side of a photo may be at most ${STRETCHED} times as long as the other; got ${width} × ${height}`);
      }
      const scale = Math.min(1, LARGEST / Math.max(width, height));
      const canvas = h("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
      const brush = canvas.getContext("2d", { willReadFrequently: true })!;
      brush.imageSmoothingQuality = "high";
      brush.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      this.credit.textContent = credit;
      await this.use({ canvas, picture: brush.getImageData(0, 0, canvas.width, canvas.height) });
    });
  }
}

function stopped(stream: MediaStream | null): void {
  stream?.getTracks().forEach((track) => track.stop());
}
