# Before a script that uses git: nobody's settings but these. No hooks, no filters, every owner is trusted.
private_git() { # an empty folder
    HOME=$1
    printf '[safe]\n\tdirectory = *\n[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n' >"$HOME/.gitconfig"
    XDG_CONFIG_HOME=$1 GIT_CONFIG_NOSYSTEM=1
    export HOME XDG_CONFIG_HOME GIT_CONFIG_NOSYSTEM
    unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
}
