# Takes a repository's history out of the sandbox and puts a repository of one commit in its place.
# Arguments: the working folder, a folder for the history that tests need (or nothing), the folders to search.
# Exit 3: something of the history could not be removed; the output names it.
set -u
work=$1 keep=$2
shift 2
own_home=${HOME:-/root}
# An image of a few files has no tools to work with, and nobody inside could read a history with those it has.
if ! command -v mktemp >/dev/null && ! [ -e "$work/.git" ]; then exit 0; fi
temporary=$(mktemp -d) || exit 1
trap 'rm -rf "$temporary"' EXIT
private_git "$temporary"

doomed=$temporary/doomed
: >"$doomed"
real() { (cd "$1" 2>/dev/null && pwd -P); }
# Nothing outside the folders given is touched: without namespaces the rest of the file system is the host's.
for folder in "$@" "$work" "$own_home" "${TMPDIR:-/tmp}"; do real "$folder"; done >"$temporary/allowed"
is_allowed() {
    while IFS= read -r allowed; do case $1/ in "${allowed%/}"/*) return 0 ;; esac done <"$temporary/allowed"
    return 1
}
doom() { [ -e "$1" ] && is_allowed "$1" && printf '%s\n' "$1" >>"$doomed"; }
deepest_first() { awk '{print length($0), $0}' | sort -rn | cut -d' ' -f2-; }

has_git=$(command -v git || true)
top=
if [ -n "$has_git" ]; then top=$(git -C "$work" rev-parse --show-toplevel 2>/dev/null) || top=; fi
if [ -z "$top" ]; then
    find "$work" -name .git -prune -print 2>/dev/null >"$temporary/inside"
    # A folder of git's elsewhere in the working folder, under another name.
    [ -s "$temporary/inside" ] || find "$work" -xdev -type d -name objects -print 2>/dev/null |
        while IFS= read -r found; do [ -f "$found/../HEAD" ] && printf '%s\n' "$found"; done >"$temporary/inside"
    [ -s "$temporary/inside" ] || exit 0
    top=$work
fi
top=$(real "$top")
is_allowed "$top" || exit 0

# Without git no commit can be made; what is left is a folder without a repository.
if [ -z "$has_git" ]; then
    find "$top" -name .git -prune -print | while IFS= read -r found; do rm -rf "$found"; done
    left=$(find "$top" -name .git -prune -print)
    [ -z "$left" ] || { printf '%s\n' "$left"; exit 3; }
    echo "no git"
    exit 0
fi

# --- What belongs to this history: the commit, or files that its objects hold.
head=$(git -C "$top" rev-parse -q --verify 'HEAD^{commit}' 2>/dev/null) || head=
git -C "$top" ls-files -s 2>/dev/null | awk '$1 ~ /^100/ {print $2}' | sort -u | head -n 64 >"$temporary/blobs"
# Where no repository is in place, what the folder holds tells which store is its own.
[ -s "$temporary/blobs" ] || (cd "$top" && find . -type f -size +0 -not -path '*/objects/*' | head -n 64 |
    git hash-object --no-filters --stdin-paths 2>/dev/null | sort -u) >"$temporary/blobs"
several=$(awk 'END {print (NR < 3) ? NR : 3}' "$temporary/blobs")
holds() { # the environment names the store
    [ -n "$head" ] && git cat-file -e "$head^{commit}" 2>/dev/null && return 0
    [ "$several" -gt 0 ] || return 1
    [ "$(git cat-file --batch-check <"$temporary/blobs" 2>/dev/null | grep -c ' blob ')" -ge "$several" ]
}
git init -q --bare --template= "$temporary/empty.git"
# The history itself: the repository in place, or else the first store that turns out to be its own.
reference=$(git -C "$top" rev-parse --absolute-git-dir 2>/dev/null) || reference=
known() { git --git-dir="${reference:-$temporary/empty.git}" cat-file "$@"; }
related_repository() { (GIT_DIR=$1 && export GIT_DIR && holds); }
in_store() { (GIT_DIR=$temporary/empty.git GIT_OBJECT_DIRECTORY=$1 && export GIT_DIR GIT_OBJECT_DIRECTORY && shift && "$@"); }
# Objects that no repository holds: also where but one of them is the history's, as of what git was about to drop.
related_objects() {
    in_store "$1" holds && return 0
    in_store "$1" git cat-file --batch-all-objects --batch-check='%(objectname)' 2>/dev/null | head -n 2000 |
        known --batch-check 2>/dev/null | grep -qv ' missing$'
}

# --- The repositories in the folder, their stores, and the stores that those borrow from.
doom_alternates() {
    [ -f "$1/info/alternates" ] || return 0
    while IFS= read -r other; do
        case $other in '' | '#'*) continue ;; /*) ;; *) other=$1/$other ;; esac
        other=$(real "$other") || continue
        [ -n "$other" ] || continue
        grep -qxF "$other" "$doomed" && continue
        doom "$other"
        doom_alternates "$other"
        case $(basename "$other") in objects) [ -f "$other/../HEAD" ] && doom "$(real "$other/..")" ;; esac
    done <"$1/info/alternates"
}
find "$top" -name .git -prune -print 2>/dev/null | deepest_first >"$temporary/repositories"
while IFS= read -r found; do
    folder=$(dirname "$found")
    store=$(git -C "$folder" rev-parse --absolute-git-dir 2>/dev/null) || continue
    common=$(cd "$folder" && real "$(git rev-parse --git-common-dir 2>/dev/null)") || common=
    for one in "$store" "$common"; do
        [ -n "$one" ] || continue
        doom "$one"
        doom_alternates "$one/objects"
    done
    # Other checkouts of the same history, at another commit. The repository's own folder is none: its files stay.
    at=$(git -C "$folder" rev-parse -q --verify HEAD 2>/dev/null) || at=none
    here=$(real "$folder")
    git -C "$folder" worktree list --porcelain 2>/dev/null | sed -n 's/^worktree //p' | while IFS= read -r other; do
        [ "$(real "$other")" = "$here" ] || printf '%s %s\n' "$at" "$other"
    done >>"$temporary/checkouts"
done <"$temporary/repositories"
# One that was moved with its repository points to where that was.
while IFS= read -r found; do
    [ -f "$found" ] || continue
    name=$(sed -n 's|^gitdir: .*/worktrees/\([^/]*\)/*$|\1|p' "$found")
    [ -n "$name" ] || continue
    while IFS= read -r store; do
        [ -d "$store/worktrees/$name" ] && printf '%s %s\n' "${head:-none}" "$(dirname "$found")" >>"$temporary/checkouts"
    done <"$doomed"
done <"$temporary/repositories"

# --- The same history elsewhere, under whatever name.
hex=
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do hex="$hex[0-9a-f][0-9a-f]"; done
find "$@" "$top" "$own_home" "${TMPDIR:-/tmp}" -xdev \( -path /proc -o -path /sys -o -path "$temporary" \) -prune -o -type f \
    \( -name HEAD -o -name '*.pack' -o -name '*.bundle' -o -name "$hex" -o -name "${hex}????????????????????????" \) \
    -print 2>/dev/null | sort -u >"$temporary/found"
find "$top" "$own_home" "${TMPDIR:-/tmp}" -xdev -path "$temporary" -prune -o -type f -size -2097152k \
    -exec grep -lE '^# v[23] git bundle$' {} + 2>/dev/null >>"$temporary/found"
: >"$temporary/stores"
while IFS= read -r found; do
    folder=$(dirname "$found")
    case $(basename "$found") in
    HEAD) [ -d "$folder/objects" ] && printf 'r %s\n' "$folder" ;;
    *.pack) case $(basename "$folder") in pack) printf 'o %s\n' "$(dirname "$folder")" ;; *) printf 'p %s\n' "$found" ;; esac ;;
    *) case $(head -c 5 "$found" 2>/dev/null | tr -d '\0') in
        '# v'*) printf 'b %s\n' "$found" ;;
        *) case $(basename "$folder") in [0-9a-f][0-9a-f]) printf 'o %s\n' "$(dirname "$folder")" ;; esac ;;
        esac ;;
    esac
done <"$temporary/found" | sort -ru >"$temporary/stores"
while read -r kind found; do
    case $kind in
    r)
        related_repository "$found" || continue
        doom "$found"
        reference=${reference:-$found}
        case $(basename "$found") in .git) printf '%s %s\n' "${head:-none}" "$(dirname "$found")" >>"$temporary/checkouts" ;; esac
        ;;
    o) [ -f "$found/../HEAD" ] || { related_objects "$found" && doom "$found"; } ;;
    p)
        mkdir -p "$temporary/lone/pack"
        cp "$found" "$temporary/lone/pack/pack-x.pack"
        git index-pack "$temporary/lone/pack/pack-x.pack" >/dev/null 2>&1
        related_objects "$temporary/lone" && { doom "$found" && doom "${found%.pack}.idx"; }
        rm -rf "$temporary/lone"
        ;;
    b)
        rm -rf "$temporary/bundle.git"
        git init -q --bare --template= "$temporary/bundle.git"
        needed=$(head -n 50 "$found" | sed -n 's/^-\([0-9a-f]*\).*/\1/p' | head -n 1)
        if [ -n "$needed" ] && known -e "$needed" 2>/dev/null; then
            doom "$found"
        elif git --git-dir="$temporary/bundle.git" fetch -q "$found" '+refs/*:refs/*' 2>/dev/null &&
            related_repository "$temporary/bundle.git"; then
            doom "$found"
        fi
        ;;
    esac
done <"$temporary/stores"

# --- What the tests need of it: the commits that the working folder came from, none after it.
if [ -n "$keep" ] && [ -n "$head" ]; then
    mkdir -p "$keep"
    git -C "$top" rev-list --objects "$head" | git -C "$top" pack-objects -q --stdout >"$keep/history.pack" || exit 1
    printf '%s\n' "$head" >"$keep/head"
    shallow=$(cd "$top" && git rev-parse --git-path shallow)
    (cd "$top" && [ -f "$shallow" ] && cp "$shallow" "$keep/shallow")
fi

# --- Checkouts of another commit go as a whole, unless the folder itself has them as a submodule.
[ -f "$temporary/checkouts" ] && sort -u "$temporary/checkouts" | while IFS=' ' read -r at folder; do
    folder=$(real "$folder") || continue
    case $top/ in "$folder"/*) continue ;; esac
    case $folder in
    "$top"/*) git -C "$top" ls-files -s -- "${folder#"$top"/}" 2>/dev/null | grep -q '^160000' && continue ;;
    esac
    [ "$(git -C "$folder" rev-parse -q --verify HEAD 2>/dev/null)" = "$at" ] || doom "$folder"
done

# --- A repository of one commit in each place, the innermost first: what was tracked, as it is in the folder now.
fresh() { # folder
    cd "$1" || return 1
    branch=$(git symbolic-ref -q --short HEAD) || branch=main
    owner=$(stat -c %u:%g .git 2>/dev/null) || owner=
    git ls-files -z | xargs -0 sh -c 'for path; do
        if [ -L "$path" ] || [ -f "$path" ] || [ -e "$path/.git" ]; then printf "%s\0" "$path"; fi
    done' sh >"$temporary/tracked"
    had=$(git rev-parse -q --verify HEAD) || had=
    for key in autocrlf eol filemode symlinks ignorecase; do
        value=$(git config --local "core.$key") && printf '%s %s\n' "$key" "$value"
    done >"$temporary/settings"
    info=$(git rev-parse --git-path info) && rm -rf "$temporary/info" && mkdir "$temporary/info"
    for file in exclude attributes; do [ -f "$info/$file" ] && cp "$info/$file" "$temporary/info/$file"; done
    rm -rf "$temporary/new"
    git init -q --template= "$temporary/new" || return 1
    while read -r key value; do git -C "$temporary/new" config "core.$key" "$value"; done <"$temporary/settings"
    mkdir -p "$temporary/new/.git/info"
    cp -R "$temporary/info/." "$temporary/new/.git/info/"
    (
        GIT_DIR=$temporary/new/.git GIT_WORK_TREE=$PWD
        export GIT_DIR GIT_WORK_TREE
        git symbolic-ref HEAD "refs/heads/$branch"
        git update-index --add -z --stdin <"$temporary/tracked" || exit 1
        [ -n "$had" ] || exit 0
        GIT_AUTHOR_NAME=start GIT_AUTHOR_EMAIL=start@localhost GIT_AUTHOR_DATE='946684800 +0000'
        GIT_COMMITTER_NAME=start GIT_COMMITTER_EMAIL=start@localhost GIT_COMMITTER_DATE='946684800 +0000'
        export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE
        tree=$(git write-tree) && commit=$(git commit-tree -m start "$tree") && git update-ref HEAD "$commit"
    ) || return 1
    rm -rf .git "$temporary/new/.git/logs"
    mv "$temporary/new/.git" .git || return 1
    printf '%s\n' "$(pwd -P)/.git" >>"$temporary/made"
    [ -z "$owner" ] || chown -R "$owner" .git 2>/dev/null
    return 0
}
while IFS= read -r found; do
    folder=$(dirname "$found")
    [ -e "$folder" ] || continue
    grep -qxF "$(real "$folder")" "$doomed" && continue
    (fresh "$folder") || { echo "no repository of one commit could be made in $folder"; exit 4; }
done <"$temporary/repositories" || exit 4

# A new repository stands where an old store was: that one is gone already.
is_made() {
    while IFS= read -r made; do case $1/ in "$made"/*) return 0 ;; esac done <"$temporary/made"
    return 1
}
: >>"$temporary/made"
status=0
sort -u "$doomed" >"$temporary/all"
while IFS= read -r found; do
    is_made "$found" && continue
    rm -rf "$found"
    [ -e "$found" ] && { printf '%s\n' "$found"; status=3; }
done <"$temporary/all"
rm -rf "$own_home/.cache/pip"
[ -e "$own_home/.cache/pip" ] && { echo "$own_home/.cache/pip"; status=3; }
[ "$status" = 0 ] && printf 'top %s\n' "$top"
exit "$status"
