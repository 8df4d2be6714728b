# blocks.awk - the fenced blocks of a document as a shell script; tests/document/run says which.

function fail(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text >"/dev/stderr"
    failed = 1
    exit 1
}

/^```/ && kind == "" {
    kind = substr($1, 4)
    is_file = (kind == "c" || kind == "ini") && NF == 2
    if (!is_file && !((kind == "sh" || kind == "text") && NF == 1))
        fail("no fence that is known: " $0)
    copied = is_file || !files
    if (copied)
        printf "at='%s:%d'\n", FILENAME, FNR
    if (is_file)
        print "cat >" $2 " <<'END_OF_BLOCK'"
    else if (copied)
        print kind == "sh" ? "{" : "expect <<'END_OF_BLOCK'"
    next
}

/^```$/ {
    if (copied)
        print kind == "sh" ? "} >\"$printed\" 2>&1 </dev/null" : "END_OF_BLOCK"
    if (copied && !is_file)
        print "passed=$((passed + 1))"
    kind = ""
    next
}

kind != "" && copied { print }

END {
    if (!failed && kind != "")
        fail("the last block is not closed")
}
