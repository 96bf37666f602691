// Captions: a photo, the words of its caption, and the region of each.
import type { Captioner } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { Board } from "./board.ts";
import { button, fill, h } from "./dom.ts";
import { PhotoSource } from "./photos.ts";
import type { Photo } from "./spotlight.ts";

export function captionsView(model: Captioner, context: Context): HTMLElement {
  const boards = h("div", { class: "boards" });
  const first = new Board(model, context, titleOf(model));
  const shown = [first];
  let photo: Photo | null = null;
  const source = new PhotoSource(context.attempt, async (found) => {
    photo = found;
    fill(
      boards,
      shown.map(({ element }) => element),
      beside,
    );
    for (const board of shown) {
      if (found === photo) {
        await board.show(found);
      }
    }
  });

  const others = context.catalogue.models.filter(
    ({ task, name }) => task === "captioning" && name !== context.entry.name,
  );
  const beside = h(
    "div",
    { class: "row" },
    others.map((entry) => {
      const add = button(
        `Beside it: ${entry.name.split(".")[0]}`,
        () =>
          void context.attempt(async () => {
            add.hidden = true;
            const other = (await context.load(entry).catch((error) => {
              add.hidden = false;
              throw error;
            })) as Captioner;
            const board = new Board(other, context, titleOf(other));
            shown.push(board);
            beside.before(board.element);
            if (photo) {
              await board.show(photo);
            }
          }),
      );
      return add;
    }),
  );
  void source.sample(0);
  return h("div", { class: "view captions" }, source.element, boards);
}

function titleOf(model: Captioner): string {
  return `${model.name}: ${model.config.attention} attention`;
}
