// A photo that is bright where a model looked.
const VEIL = 0.82; // darkness where it did not look at all
const OFTEN: CanvasRenderingContext2DSettings = { willReadFrequently: true }; // drawn without the GPU, which is slow to begin

/** A photo and the part of it that a model sees: left, top, width, height. */
export interface Photo {
  canvas: HTMLCanvasElement;
  picture: ImageData;
}

/** A photo as wide as `width`, from which small ones are drawn. */
export function thumbnail({ canvas }: Photo, width: number): HTMLCanvasElement {
  const small = document.createElement("canvas");
  [small.width, small.height] = [width, Math.round((canvas.height * width) / canvas.width)];
  const brush = small.getContext("2d", OFTEN)!;
  brush.imageSmoothingQuality = "high";
  brush.drawImage(canvas, 0, 0, small.width, small.height);
  return small;
}

/** Draws a photo onto a canvas, which keeps its width; without weights all of it is bright. */
export function spotlight(
  onto: HTMLCanvasElement,
  canvas: HTMLCanvasElement,
  frame: readonly number[],
  [rows, columns]: readonly [number, number],
  weights: Float32Array | null,
): void {
  const scale = onto.width / canvas.width;
  onto.height = Math.round(canvas.height * scale);
  const brush = onto.getContext("2d", OFTEN)!;
  brush.drawImage(canvas, 0, 0, onto.width, onto.height);
  if (!weights) {
    return;
  }
  const [left, top, width, height] = frame.map((x) => x * scale);
  brush.fillStyle = `rgb(0 0 0 / ${VEIL})`;
  brush.beginPath();
  brush.rect(0, 0, onto.width, onto.height);
  brush.rect(left, top, width, height);
  brush.fill("evenodd");
  brush.imageSmoothingEnabled = true;
  brush.imageSmoothingQuality = "high";
  brush.drawImage(veil(rows, columns, weights), left, top, width, height);
}

let small: HTMLCanvasElement | null = null;

/** A cell a pixel: black, and as opaque as the cell is unattended; valid until the next call. */
function veil(rows: number, columns: number, weights: Float32Array): HTMLCanvasElement {
  small ??= document.createElement("canvas");
  [small.width, small.height] = [columns, rows];
  const highest = Math.max(1e-9, ...weights);
  const image = new ImageData(columns, rows);
  weights.forEach((weight, n) => (image.data[4 * n + 3] = 255 * VEIL * (1 - weight / highest)));
  small.getContext("2d", OFTEN)!.putImageData(image, 0, 0);
  return small;
}

/** Weights around a cell, which fall off with the distance. */
export function spot(
  [rows, columns]: readonly [number, number],
  row: number,
  column: number,
  radius: number,
): Float32Array {
  const weights = new Float32Array(rows * columns);
  weights.forEach((_, n) => {
    const distance = Math.hypot(Math.floor(n / columns) - row, (n % columns) - column);
    weights[n] = Math.exp(-((distance / radius) ** 2));
  });
  return weights;
}

export function normalised(weights: Float32Array): Float32Array {
  const total = weights.reduce((one, other) => one + other, 0);
  return weights.map((weight) => (weight < total * 1e-5 ? 0 : weight / total));
}
