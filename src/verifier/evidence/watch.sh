# What could change how programs run here, outside the working folder or in the settings of its test runner.
# Arguments: the working folder, the folders to search. A record is 0x1e, a name, 0x1f and a content.
work=$1
shift
content() { [ -f "$1" ] && { printf '\036%s\037' "$1"; head -c 65536 "$1"; }; }
list=
for name in sh bash dash env python python3 pytest py.test tox nox node npm npx yarn pnpm bun deno go cargo rustc java \
    javac mvn gradle make cmake ruby rspec bundle php perl gcc cc g++ git cat grep diff timeout tee find xargs sed awk \
    test true false echo printf; do
    found=$(command -v "$name") || continue
    case $found in /*) list="$list $found" ;; esac
done
# The first two bytes tell a script from a binary.
# shellcheck disable=SC2086
heads=$(head -qc 2 $list 2>/dev/null)
# shellcheck disable=SC2086
stat -Lc '%n %s %i %Z' $list 2>/dev/null |
    awk -v heads="$heads" '{printf "\036program %s\037%s %s %s %s", $1, substr(heads, 2 * NR - 1, 2), $2, $3, $4}'
find "$@" "${HOME:-/root}" -xdev \( -path /proc -o -path /sys -o -path "$work" \) -prune -o -type f \( \
    -name sitecustomize.py -o -name usercustomize.py -o -name '*.pth' -o -name '*.egg-link' -o -name conftest.py \
    -o -name pytest.ini -o -path '*-info/entry_points.txt' -o -name ld.so.preload -o -name .bashrc -o -name .profile \
    -o -name .bash_profile -o -name .zshenv -o -name .gitconfig -o -name .npmrc -o -name .pydistutils.cfg \
    -o -name .pythonrc -o -path '*/.config/git/config' \) -print 2>/dev/null | sort -u |
    while IFS= read -r found; do content "$found"; done
cd "$work" || exit 0
find . -maxdepth 5 \( -name node_modules -o -name .git -o -name .venv -o -name venv -o -name target \) -prune -o -type f \( \
    -name conftest.py -o -name pytest.ini -o -name tox.ini -o -name setup.cfg -o -name pyproject.toml -o -name noxfile.py \
    -o -name package.json -o -name Makefile -o -name 'jest.config.*' -o -name 'vitest.config.*' -o -name '.mocharc*' \
    -o -name 'karma.conf.*' \) -print 2>/dev/null | sort | while IFS= read -r found; do content "$found"; done
exit 0
