/*
 * test_machines.c - which rank is on which machine, as text and as numbers.
 */
#include <stdio.h>
#include <string.h>

#include "launch/machines.h"
#include "lib/test.h"

enum { RANKS = 16 };

TEST(test_good)
{
    static const struct {
        const char *text;
        uint32_t n_ranks, n_machines;
        const char *each;      /* a digit a rank */
        const char *formatted; /* NULL: as the text */
    } rows[] = {
        {"", 3, 1, "000", "3"},
        {"3", 3, 1, "000", NULL},
        {"1x3", 3, 1, "000", "3"},
        {"2x2", 4, 2, "0011", NULL},
        {"1+2", 3, 2, "011", NULL},
        {"1+1", 2, 2, "01", "2x1"},
        {"2x2+1+3x1", 8, 6, "00112345", "2x2+4x1"},
        {"0,1,0,1", 4, 2, "0101", NULL},
        {"0,0,1,1", 4, 2, "0011", "2x2"},
        {"0,1,2,0", 4, 3, "0120", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t machines[RANKS], n_machines;
        char why[128] = "", text[64];
        if (!dpb_machines_parse(rows[i].text, rows[i].n_ranks, machines, &n_machines, why))
            fail_msg("'%s': %s", rows[i].text, why);
        assert_int_equal(n_machines, rows[i].n_machines);
        for (uint32_t rank = 0; rank < rows[i].n_ranks; rank++)
            assert_int_equal(machines[rank], rows[i].each[rank] - '0');
        assert_true(dpb_machines_format(machines, rows[i].n_ranks, text, sizeof text));
        assert_string_equal(text, rows[i].formatted ? rows[i].formatted : rows[i].text);
    }
}

TEST(test_bad)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"2", "about 2 ranks, the job has 4"},
        {"2x3", "about 6 ranks, the job has 4"},
        {"9999x9999", "about 99980001 ranks, the job has 4"},
        {"99999", "not of the form"},
        {"0", "not of the form"},
        {"2x0+4", "not of the form"},
        {"0x4", "not of the form"},
        {"2x", "not of the form"},
        {"2+", "not of the form"},
        {"2x2x2", "not of the form"},
        {"-4", "not of the form"},
        {" 4", "not of the form"},
        {"4 ", "not of the form"},
        {"1,0,0,0", "machine 1 comes before machine 0"},
        {"0,2,1,0", "machine 2 comes before machine 1"},
        {"0,1,", "not of the form"},
        {"0,1", "about 2 ranks, the job has 4"},
        {"0,1,0,1,0", "about 5 ranks, the job has 4"},
        {"0,a,0,1", "not of the form"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t machines[4], n_machines;
        char why[128] = "";
        if (dpb_machines_parse(rows[i].text, 4, machines, &n_machines, why))
            fail_msg("'%s' was taken", rows[i].text);
        if (strstr(why, rows[i].why) == NULL)
            fail_msg("'%s': '%s', not '%s'", rows[i].text, why, rows[i].why);
    }
}

/* A text that does not fit is none. */
TEST(test_capacity)
{
    static const uint32_t machines[] = {0, 1, 0, 1};
    char text[8] = "";
    assert_true(dpb_machines_format(machines, 4, text, 8));
    assert_false(dpb_machines_format(machines, 4, text, 7));
}

TEST_MAIN(NULL, NULL)
