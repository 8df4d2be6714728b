#!/bin/sh
# needs: plain
#
# Each public header is complete in itself: alone it is valid C11 and valid C++17, without a
# warning. Run from the top of the tree.
. tests/lib/verdict.sh

compiles() { # COMPILER STANDARD LANGUAGE HEADER: included as the author of a plugin does
    verdict "$4 is not complete as $2" "$(printf '#include <dpbench/%s>\n' "$(basename "$4")" |
        "$1" "$2" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Icore/include -x "$3" - 2>&1)"
}

for header in core/include/dpbench/*.h; do
    compiles cc -std=c11 c "$header"
    compiles c++ -std=c++17 c++ "$header"
done
end
