/* needs: native */
/* test_traces.c - shared memory of a job is a trace, a neighbour's temporary directory is none. */
#include "lib/traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"

TEST(test_shared_memory)
{
    char own[64], file[] = "/dev/shm/dpb_traces_XXXXXX", neighbours[] = "/dev/shm/dpb_fuzz_XXXXXX",
                  inner[64];
    struct traces before, after;
    bool found = false;
    temporary_directory(own);
    traces_take(&before, own);
    assert_non_null(mkdtemp(neighbours));
    snprintf(inner, sizeof inner, "%s/seed", neighbours);
    write_file(inner, "x", 1);
    traces_expect_none(&before, "a neighbour's directory", 0.5);
    remove_directory(neighbours);

    assert_int_equal(close(mkstemp(file)), 0);
    traces_take(&after, own);
    for (size_t i = 0; i < after.n; i++)
        found |= strstr(after.names[i], file) != NULL;
    assert_int_equal(unlink(file), 0);
    assert_true(found);
    remove_directory(own);
}

TEST_MAIN(NULL, NULL)
