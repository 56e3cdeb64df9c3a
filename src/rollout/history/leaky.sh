# A working folder (work) whose history holds a fix in every place that git knows, and copies of that history elsewhere.
set -e
export HOME="$PWD/home" TMPDIR="$PWD/tmp" GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
mkdir -p home tmp store/pack other
git config --global protocol.file.allow always
git config --global init.defaultBranch trunk
git config --global advice.detachedHead false
git init -q sub
(cd sub && echo sub >s && git add . && git commit -qm sub && echo SUBFIX >s && git commit -qam later)
git init -q up
cd up
for i in 1 2 3 4 5 6 7 8; do echo "file $i with some words" >"f$i"; done
echo 'build/' >.gitignore
mkdir build
echo tracked >build/keep
echo 'with space' >'a file'
ln -s f2 link
chmod +x f1
git add -f .
git commit -qm base
git submodule -q add ../sub lib/sub
(cd lib/sub && git checkout -q HEAD~1)
git add lib/sub
git commit -qm 'submodule'
BASE=$(git rev-parse HEAD)
echo SECRETFIX >f1
git commit -qam fix
git tag v2
git tag -a -m SECRETFIX-tag v3
git notes add -m SECRETFIX-note
git bundle create -q ../whole.bundle --all
git bundle create -q ../thin.bundle "$BASE..trunk"
cd ..
git clone -q --no-local up work
cd work
git checkout -q -B trunk "$BASE"
git submodule -q update --init
git update-ref ORIG_HEAD v2
echo SECRETFIX-stash >f2
git stash -q
echo SECRETFIX-dangling | git hash-object -w --stdin >/dev/null
git pack-refs --all
git gc -q --no-prune 2>/dev/null
cp ../whole.bundle data.bin
cp ../thin.bundle thin.bundle
cp ../thin.bundle ../tmp/renamed
cp -R .git .git-old
cp -R .git ../home/mirror
git worktree add -q inner v2
git worktree add -q ../outer v2
git clone -q ../up ../home/clone
mkdir -p ../home/.cache/pip/http ../home/.cache/uv
echo SECRETFIX >../home/.cache/pip/http/x
cp -R ../up ../home/.cache/uv/checkout
git clone -q --bare ../sub/.git ../home/unrelated.git
git init -q ../other/project
(cd ../other/project && echo mine >m && git add . && git commit -qm mine)
cp .git/objects/pack/*.pack .git/objects/pack/*.idx ../store/pack/
echo ../../../store >.git/objects/info/alternates
for pack in .git/objects/pack/*.pack; do cp "$pack" ../tmp/lone.pack; done
echo untracked >new
echo ignored >build/ignored
cd ..
rm -rf up sub whole.bundle thin.bundle
