#!/bin/sh
# needs: plain
#
# Each public header is complete in itself: alone it is valid C11 and valid C++17, without a
# warning. Run from the top of the tree.
passed=0 failed=0

compiles() { # COMPILER STANDARD LANGUAGE HEADER: included as the author of a plugin does
    if printf '#include <dpbench/%s>\n' "$(basename "$4")" |
        "$1" "$2" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Icore/include -x "$3" -; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$4 is not complete as $2"
    fi
}

for header in core/include/dpbench/*.h; do
    compiles cc -std=c11 c "$header"
    compiles c++ -std=c++17 c++ "$header"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
