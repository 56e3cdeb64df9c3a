# After the agent: makes the repository at $1 one that no setting of the agent's acts in. With a folder $2 that holds
# `head` and `history.pack`, it becomes what it was at the start: that commit, and what came before it.
set -u
top=$1 kept=$2
temporary=$(mktemp -d) || exit 1
trap 'rm -rf "$temporary"' EXIT
private_git "$temporary"
cd "$top" || exit 1
if [ -z "$kept" ]; then
    [ -d .git ] && [ ! -L .git ] || exit 0
    rm -rf .git/hooks .git/config .git/config.worktree .git/info/attributes
    printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = true\n' >.git/config
    exit 0
fi
rm -rf .git
git init -q --template= . || exit 1
[ -f "$kept/shallow" ] && cp "$kept/shallow" .git/shallow
git index-pack --stdin <"$kept/history.pack" >/dev/null || exit 1
git update-ref --no-deref HEAD "$(cat "$kept/head")" && git read-tree HEAD || exit 1
git update-index -q --refresh >/dev/null
chown -R "$(stat -c %u:%g .)" .git 2>/dev/null
rm -rf "$kept"
exit 0
