// From an image to a model's input pixels, byte for byte as Pillow 13: zoo/vision/images.py. Earlier versions always
// begin with the width, and round some bytes otherwise.

/** Rows of red, green, blue and alpha, as the ImageData of a canvas. */
export interface Picture {
  width: number;
  height: number;
  data: Uint8ClampedArray | Uint8Array;
}

/** The content of preprocessing.json; the graph does the rest. */
export interface Transform {
  size: number;
  resize: "squash" | "crop";
}

/** Red, green and blue of each pixel. */
interface Colours {
  width: number;
  height: number;
  data: Uint8Array;
}

const PRECISION = 2 ** 22; // of Pillow's fixed-point weights
const SUPPORT = 2; // of the bicubic filter

/** The part of an image that a model sees: left, top, width and height. */
export function framed({ width, height }: { width: number; height: number }, { resize }: Transform): number[] {
  if (resize === "squash") {
    return [0, 0, width, height];
  }
  const side = Math.min(width, height);
  return [Math.floor((width - side) / 2), Math.floor((height - side) / 2), side, side];
}

/** (3, size, size) bytes. */
export function pixels(picture: Picture, transform: Transform): Uint8Array {
  const { size } = transform;
  const whole = picture.width === size && picture.height === size;
  const [left, top, width, height] = whole ? [0, 0, size, size] : framed(picture, transform);
  const colours = resized(onWhite(picture, left, top, width, height), size);
  const planes = new Uint8Array(3 * size * size);
  for (let place = 0; place < size * size; place++) {
    for (let colour = 0; colour < 3; colour++) {
      planes[colour * size * size + place] = colours.data[3 * place + colour];
    }
  }
  return planes;
}

/** A part of a picture, transparent pixels on white. */
function onWhite(picture: Picture, left: number, top: number, width: number, height: number): Colours {
  const data = new Uint8Array(width * height * 3);
  let place = 0;
  for (let y = top; y < top + height; y++) {
    for (let x = left; x < left + width; x++) {
      const from = 4 * (y * picture.width + x);
      const alpha = picture.data[from + 3];
      for (let colour = 0; colour < 3; colour++) {
        const mixed = 255 * (255 - alpha) + picture.data[from + colour] * alpha + 128;
        data[place++] = ((mixed >> 8) + mixed) >> 8;
      }
    }
  }
  return { width, height, data };
}

/** Bicubic in two directions, each rounded to bytes; Pillow 13 begins with the height where that is less work. */
function resized(colours: Colours, size: number): Colours {
  const { width, height } = colours;
  const vertical = height > size && height - size > 2 * (width - size);
  return resampled(resampled(colours, size, vertical), size, !vertical);
}

/** One direction; `vertical` changes the height. */
function resampled(colours: Colours, size: number, vertical: boolean): Colours {
  const { width, height, data } = colours;
  if ((vertical ? height : width) === size) {
    return colours;
  }
  const windows = windowsOf(vertical ? height : width, size);
  const out = { width: vertical ? width : size, height: vertical ? size : height };
  const found = new Uint8Array(out.width * out.height * 3);
  const stride = 3 * (vertical ? width : 1);
  for (let y = 0; y < out.height; y++) {
    for (let x = 0; x < out.width; x++) {
      const { first, weights } = windows[vertical ? y : x];
      const start = vertical ? 3 * (first * width + x) : 3 * (y * width + first);
      for (let colour = 0; colour < 3; colour++) {
        let sum = PRECISION / 2;
        for (let n = 0; n < weights.length; n++) {
          sum += data[start + n * stride + colour] * weights[n];
        }
        const rounded = Math.floor(sum / PRECISION);
        found[3 * (y * out.width + x) + colour] = rounded < 0 ? 0 : rounded > 255 ? 255 : rounded;
      }
    }
  }
  return { ...out, data: found };
}

/** For each new pixel the first old one that counts, and the weights of those from there on. */
function windowsOf(from: number, to: number): { first: number; weights: number[] }[] {
  const scale = from / to;
  const stretch = Math.max(scale, 1);
  const reach = SUPPORT * stretch;
  return Array.from({ length: to }, (_, place) => {
    const centre = (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const last = Math.min(from, Math.trunc(centre + reach + 0.5));
    const weights: number[] = [];
    let total = 0;
    for (let n = first; n < last; n++) {
      const weight = bicubic((n - centre + 0.5) * (1 / stretch));
      weights.push(weight);
      total += weight;
    }
    return { first, weights: weights.map((weight) => fixed(total === 0 ? weight : weight / total)) };
  });
}

function bicubic(distance: number): number {
  const a = -0.5;
  const x = Math.abs(distance);
  if (x < 1) {
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  }
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

function fixed(weight: number): number {
  return Math.trunc(weight < 0 ? -0.5 + weight * PRECISION : 0.5 + weight * PRECISION);
}
