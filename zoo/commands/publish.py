"""`zoo publish --all`: the whole registry on the Hub, and the pins by which `zoo.load` finds it there."""

import argparse
import re
import sys
from pathlib import Path

from zoo import registry
from zoo.bundles import hub, pins
from zoo.bundles.files import LOCAL_DIR, local_dir
from zoo.bundles.publish import Package, check_repo_id, prepare, publish
from zoo.commands import cards


def package(source: str, repo_id: str) -> Package:
    """What `zoo publish` would upload, for a name of `zoo list` or a folder (local-dir:FOLDER or FOLDER)."""
    check_repo_id(repo_id)
    if source in registry.TABLE:
        name, card, bundle = source, cards.CARDS / f"{source}.md", registry.open_bundle(source, golden=True)
    elif source.startswith(LOCAL_DIR) or "/" in source or Path(source).is_dir():
        name, card, bundle = None, None, local_dir(source.removeprefix(LOCAL_DIR))
    else:
        raise registry.unknown(source)
    return prepare(bundle, registry.model_class(bundle.class_path), repo_id, name, card)


def run(options: argparse.Namespace) -> None:
    """Publishes one weight, or all of them."""
    given = [word for word in (options.source, options.repo) if word is not None]
    if len(given) != (0 if options.all else 2):
        raise ValueError("zoo publish needs either SOURCE and ORG/REPO, or --all ORG")
    if options.pins and not options.all:
        raise ValueError("--pins is for --all")
    if options.all:
        run_all(options)
        return
    found = package(options.source, options.repo)
    if options.dry_run:
        print(f"{found.table()}\n\nnothing was uploaded (--dry-run)")
    else:
        print(publish(found, private=options.private, replace_card=options.replace_card))


def run_all(options: argparse.Namespace) -> None:
    """Publishes each weight of the registry as ORG/NAME, and writes its commit into the file of pins at once.

    What is already there unchanged is not uploaded again, so the command resumes where it was interrupted. A weight
    that cannot be published is reported on standard error, and keeps its earlier pin; all others are still published.

    Args:
        options: all (the organisation), private, dry_run, replace_card, pins.

    Raises:
        BundleError: the Hub cannot be reached, or there is no valid token.
        ValueError: `all` is not the name of an organisation; or, after all others, weights could not be published.
    """
    if not re.fullmatch(r"\w[\w.-]*", options.all):
        raise ValueError(f"--all needs the name of a user or an organisation on the Hub; got '{options.all}'")
    file = Path(options.pins or registry.PINS)
    found = pins.read(file, registry.TABLE)
    if not options.dry_run:
        hub.check_login()
    names, failed = registry.list_models(), 0
    for name in names:
        try:
            collected = package(name, f"{options.all}/{name}")
            if options.dry_run:
                print(f"{name}: {sum(map(len, collected.files.values())):,} bytes for {collected.repo_id}", flush=True)
                continue
            done = publish(collected, private=options.private, replace_card=options.replace_card)
        except hub.UnreachableError:  # the others would fail for the same reason
            raise
        except (ValueError, OSError) as error:
            failed += 1
            print(f"zoo: {name}: {' '.join(str(error).split())}", file=sys.stderr)
            continue
        pins.write(file, found := {**found, name: pins.Pin(done.repo_id, done.commit)})
        kept = "; kept its README.md, which a person wrote (--replace-card replaces it)" * done.kept_card
        print(f"{name}: {'published as' if done.changed else 'unchanged at'} {done.source}{kept}", flush=True)
    if options.dry_run:
        print("\nnothing was uploaded (--dry-run)")
    else:
        print(f"\n{len(names) - failed} of {len(names)} weights are on the Hub; their pins are in {file}")
    if failed:
        raise ValueError(f"{failed} of {len(names)} weights could not be published; see above; run it again to resume")
