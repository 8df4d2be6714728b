#!/bin/sh
# For scripts that look for offenders: what they count, and their end. Sourced.
passed=0 failed=0

verdict() { # TEXT OFFENDERS: passes when there are none
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1:"
        echo "$2" | sed 's/^/    /'
    fi
}

end() { # the line that tools/run-tests counts by, and the status
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}
