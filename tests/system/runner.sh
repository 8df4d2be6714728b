#!/bin/sh
# A program that was not run, or whose run was killed, is a failure of tools/run-tests.
. tests/lib/verdict.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() { # NAME COMMANDS
    printf '#!/bin/sh\n%s\n' "$2" >"$work/$1"
    chmod +x "$work/$1"
}
program good 'echo "2 passed, 0 failed, 1 skipped"'
program mute 'exit 0'
program late 'echo "1 passed, 0 failed, 0 skipped"'
# Its parent is timeout, and the parent of that the shell that runs it for xargs.
program killer 'kill -9 "$(ps -o ppid= -p $PPID | tr -d " ")"; sleep 1'

expect() { # STATUS LAST_LINE PROGRAM...
    wanted=$1 line=$2
    shift 2
    (cd "$work" && printf '%s\n' "$@") | sed "s|^|$work/|" >"$work/list"
    # shellcheck disable=SC2046 # a list
    TEST_JOBS=1 tools/run-tests $(cat "$work/list") >"$work/log" 2>&1
    got="$? $(tail -n 1 "$work/log")"
    verdict "$*" "$([ "$got" = "$wanted $line" ] || { echo "$got"; cat "$work/log"; })"
}
expect 0 "2 passed, 0 failed, 1 skipped" good
expect 1 "2 passed, 1 failed, 1 skipped" good mute
expect 1 "0 passed, 2 failed, 0 skipped" killer late
end
