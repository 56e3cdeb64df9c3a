# What the agent left, in the working folder. A list is 0x1e, a name, and lines.
exec 2>/dev/null
logs=$LEGO_LOGS_DIR/verifier
printf '\036logs\n'
find "$logs" ! -path "$logs"
[ -d "$logs" ] && [ ! -L "$logs" ] || echo "$logs"
printf '\036links\n'
find . -type l | while IFS= read -r link; do
    # An environment that was made for Python links to the interpreter.
    case $link in */bin/python*) [ -f "${link%/bin/*}/pyvenv.cfg" ] && continue ;; esac
    case $(readlink -f -- "$link") in "$PWD" | "$PWD"/*) ;; *) echo "$link" ;; esac
done
printf '\036future\n'
now=$(mktemp) && find . -type f -newer "$now"
rm -f "$now"
printf '\036git\n'
find .git/hooks -type f ! -name '*.sample'
grep -HiE 'hooksPath|fsmonitor|sshCommand|\[(filter|alias|include|includeIf) ?' .git/config
exit 0
