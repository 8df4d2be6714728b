# printed.awk - whether the lines of the first file are among those of the second, in their order;
# any number stands for any other, of either sign, and so do blanks, units of time, and the host of
# a process; the marks of a short run (<) and of a busy machine (?) may be there or not.

function plain(line) {
    gsub(/[0-9]+([.][0-9]+)?/, "N", line)
    gsub(/N<?[?]?/, "N", line)
    gsub(/ -N/, " N", line)
    gsub(/N (ns|us|ms)/, "N s", line)
    gsub(/\([^ ()]+, pid N\)/, "(host, pid N)", line)
    gsub(/[ \t]+/, " ", line)
    sub(/ $/, "", line)
    return line
}

FNR == 1 { input++ }
input == 1 && $0 != "" { text[++n] = $0 }
input == 2 && found < n && plain($0) == plain(text[found + 1]) { found++ }
END {
    if (n == 0 || found < n) {
        print "not printed: " text[found + 1]
        exit 1
    }
}
