"""`zoo publish --all`: the whole registry on the Hub, and the pins by which `zoo.load` finds it there."""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from zoo import registry
from zoo.bundles import hub, pins
from zoo.bundles.publish import Package, publish


def run_all(options: argparse.Namespace, package: Callable[[str, str], Package]) -> None:
    """Publishes each weight of the registry as ORG/NAME, and writes its commit into the file of pins at once.

    What is already there unchanged is not uploaded again, so the command resumes where it was interrupted. A weight
    that cannot be published is reported on standard error, and keeps its earlier pin; all others are still published.

    Args:
        options: all (the organisation), private, dry_run, replace_card, pins.
        package: What collects and checks the files of a weight, given its name and repository.

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
