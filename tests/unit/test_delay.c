/*
 * test_delay.c - run.delay: the moments of each distribution against its formula, what depends on
 * seed, rank and step, what is refused, and that a sleep is never shorter than its delay.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/test.h"
#include "plan/delay.h"
#include "world/world.h"

enum { DRAWS = 200000, WORKERS = 4 };

static struct dpb_delay make(const char *text, const char *ranks, uint64_t seed)
{
    struct dpb_delay delay;
    assert_int_equal(dpb_delay_make(text, "here", ranks, "there", WORKERS, seed, &delay), DPB_OK);
    return delay;
}

/* ---- distributions ------------------------------------------------------------------------- */

/* Means over ranks and steps of a function of the delay in units of its time. */
static double mean_of(const struct dpb_delay *delay, double time_ns, double (*function)(double))
{
    double sum = 0.0;
    for (uint32_t i = 0; i < DRAWS; i++)
        sum += function((double)dpb_delay_of(delay, i % WORKERS, i / WORKERS) / time_ns);
    return sum / DRAWS;
}

static double itself(double x)
{
    return x;
}

static double squared(double x)
{
    return x * x;
}

static double cubed(double x)
{
    return x * x * x;
}

static double below_one(double x)
{
    return x < 1.0 - 1e-6;
}

static double above_four(double x)
{
    return x > 4.0;
}

/* Bounds are 5 standard errors of 200000 draws, from the formula's own variance. */
TEST(test_moments)
{
    static const struct {
        const char *text;
        double time_ns;
        double (*function)(double);
        double expected, bound;
    } rows[] = {
        {"constant(20 ms)", 20e6, itself, 1.0, 1e-9},
        {"constant(20 ms)", 20e6, squared, 1.0, 1e-9},
        {"exponential(20 ms)", 20e6, itself, 1.0, 0.0112},
        {"exponential(20 ms)", 20e6, squared, 2.0, 0.05}, /* variance 24 - 4 */
        {"exponential(20 ms)", 20e6, cubed, 6.0, 0.293},  /* 720 - 36 */
        {"exponential( 3us )", 3e3, above_four, 0.0183156, 0.0015},
        {"pareto(20 ms, 1.5)", 20e6, below_one, 0.0, 0.0},
        {"pareto(20 ms, 1.5)", 20e6, above_four, 0.125, 0.0037}, /* 4^-1.5 */
        {"pareto(20 ms, 4)", 20e6, itself, 4.0 / 3.0, 0.0053},   /* 2 - 16 / 9 */
        {"pareto (1 s,8)", 1e9, squared, 8.0 / 6.0, 0.0053},     /* 8 / 4 - 16 / 9 */
        {"pareto(20 ms, 8)", 20e6, cubed, 8.0 / 5.0, 0.0134},    /* 8 / 2 - 2.56 */
        {"chance(50ms, 0.05)", 50e6, itself, 0.05, 0.0025},      /* 0.05 x 0.95 */
        {"chance(50ms, 0.05)", 50e6, cubed, 0.05, 0.0025},       /* all or nothing */
        {"chance(1 s, 1)", 1e9, below_one, 0.0, 0.0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dpb_delay delay = make(rows[i].text, "all", 7);
        const double is = mean_of(&delay, rows[i].time_ns, rows[i].function);
        if (!(fabs(is - rows[i].expected) <= rows[i].bound))
            fail_msg("row %zu, %s: %.6f, not %.6f within %.6f", i, rows[i].text, is,
                     rows[i].expected, rows[i].bound);
    }
}

/* Equal for equal seed, rank and step; another for any of them. */
TEST(test_seed)
{
    const struct dpb_delay a = make("exponential(20 ms)", "all", 1);
    const struct dpb_delay b = make("exponential(20 ms)", "all", 2);
    const uint64_t far = UINT64_C(1) << 32;
    assert_true(dpb_delay_of(&a, 1, 5) == dpb_delay_of(&a, 1, 5));
    assert_true(dpb_delay_of(&a, 1, 5) != dpb_delay_of(&b, 1, 5));
    assert_true(dpb_delay_of(&a, 1, 5) != dpb_delay_of(&a, 2, 5));
    assert_true(dpb_delay_of(&a, 1, 5) != dpb_delay_of(&a, 1, 6));
    assert_true(dpb_delay_of(&a, 1, 5) != dpb_delay_of(&a, 1, 5 + far));
}

TEST(test_ranks)
{
    const struct dpb_delay some = make("constant(1 ms)", " 3, 0", 1), none = make("none", "all", 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        assert_int_equal(dpb_delay_of(&some, rank, 9), rank == 0 || rank == 3 ? 1000000 : 0);
        assert_int_equal(dpb_delay_of(&none, rank, 9), 0);
    }
}

/* ---- traces -------------------------------------------------------------------------------- */

static char trace[] = "/tmp/test_delay.XXXXXX";

static void write_trace(const char *content, size_t length)
{
    FILE *file = fopen(trace, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static int make_trace(void **state)
{
    const int fd = mkstemp(trace);
    (void)state;
    return fd < 0 || close(fd);
}

static int remove_trace(void **state)
{
    (void)state;
    return unlink(trace);
}

/* Worker r sleeps in step s for line 4 s + r, again from the first; those that are not named never
 * do. */
TEST(test_trace)
{
    static const char lines[] =
        "\xef\xbb\xbf"
        "1e0\r\n\r\n0\n 2.5\n# of Monday\n30 us ; slow\n\n4 s \n1e-6\n60000\n\n";
    static const int64_t ns[] = {1000000, 0, 2500000, 30000, 4000000000, 1, 60000000000};
    char text[64];
    write_trace(lines, strlen(lines));
    snprintf(text, sizeof text, "trace(%s)", trace);
    struct dpb_delay all = make(text, "all", 1), some = make(text, "1,3", 2);
    for (uint64_t step = 0; step < 30; step++)
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            const int64_t expected = ns[(step * WORKERS + rank) % 7];
            assert_int_equal(dpb_delay_of(&all, rank, step), expected);
            assert_int_equal(dpb_delay_of(&some, rank, step), rank % 2 ? expected : 0);
        }
    dpb_delay_destroy(&all);
    dpb_delay_destroy(&some);
    dpb_delay_destroy(&some);
    assert_int_equal(dpb_delay_of(&all, 0, 0), 0);
}

TEST(test_bad_traces)
{
    static const struct {
        const char *lines, *message;
        size_t length;
    } rows[] = {
        {"1\n2\nthree\n4\n", ":3: 'three' is not a delay", 0},
        {"1\n\n4x\n", ":3: '4x' is not a delay", 0},
        {"1e5\n", ":1: '1e5' is not a delay", 0},
        {"1e\n", ":1: '1e' is not a delay", 0},
        {"\n \n", " has no line", 0},
        {"1\n\xef\xbb\xbf"
         "2\n",
         ":2: '", 0},
        {"-1\n", ":1: '-1' is not a delay", 0},
        {"1\n60001\n", ":2: '60001' is not a delay", 0},
        {"1 2\n", ":1: '1 2' is not a delay", 0},
        {"nan\n", ":1: 'nan' is not a delay", 0},
        {"1\n2\n3\n4\n0.0000001\n", ":5: '0.0000001' is not a delay", 0},
        {"1\n2\0003\n", ":2: a NUL byte", 6},
        {"1\n2\0003", ":2: a NUL byte", 5},
        {"1\n\0", ":2: a NUL byte", 3},
        {"1\n2,\n", ":2: '2,' is not a delay", 0},
        {"", " has no line", 0},
        {"1\n00000000000000000000000000000000000000000000000000000000000000000000000000001\n",
         ":2: the line is longer than 63 bytes", 0},
    };
    dpb_status status;
    char text[64];
    snprintf(text, sizeof text, "trace(%s)", trace);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_delay delay;
        write_trace(rows[i].lines, rows[i].length ? rows[i].length : strlen(rows[i].lines));
        const dpb_status is = dpb_delay_make(text, "here", "all", "there", WORKERS, 1, &delay);
        const char *message = dpb_first_error(&status);
        if (is != DPB_USAGE || !strstr(message, rows[i].message) || !strstr(message, trace))
            fail_msg("row %zu: status %d, message '%s'", i, is, message);
        dpb_first_error_clear();
    }
}

/* ---- refusals ------------------------------------------------------------------------------ */

TEST(test_refusals)
{
    static const struct {
        const char *delay, *ranks, *message;
    } rows[] = {
        {"", "all", "here: run.delay = ''"},
        {"constant", "all", "run.delay = 'constant'"},
        {"none(1 ms)", "all", "run.delay"},
        {"constant()", "all", "run.delay"},
        {"constant(20)", "all", "run.delay"},
        {"constant(0 ms)", "all", "run.delay"},
        {"constant(-1 ms)", "all", "run.delay"},
        {"constant(61 s)", "all", "run.delay"},
        {"constant(20 ms, 2)", "all", "run.delay"},
        {"constant(20 ms", "all", "run.delay"},
        {"constant(20 ms) x", "all", "run.delay"},
        {"uniform(20 ms)", "all", "run.delay"},
        {"pareto(20 ms)", "all", "run.delay"},
        {"pareto(20 ms, 1)", "all", "run.delay"},
        {"pareto(20 ms, nan)", "all", "run.delay"},
        {"pareto(20 ms, 2, 3)", "all", "run.delay"},
        {"chance(20 ms)", "all", "run.delay"},
        {"chance(20 ms, 0)", "all", "chances above 0 and up to 1"},
        {"chance(20 ms, 1.01)", "all", "run.delay"},
        {"none", "", "there: run.delay_ranks = ''"},
        {"none", "4", "workers below 4"},
        {"none", "1,1", "run.delay_ranks"},
        {"none", "1,", "run.delay_ranks"},
        {"none", "-1", "run.delay_ranks"},
        {"none", "1 2", "run.delay_ranks"},
        {"none", "one", "run.delay_ranks"},
        {"trace()", "all", "run.delay = 'trace()'"},
        {"trace(a", "all", "trace(FILE)"},
        {"trace(/)", "all", "run.delay: /: cannot be read: "},
        {"trace(/no/x)", "all", "run.delay: /no/x: cannot be read: "},
        {"trace", "all", "run.delay = 'trace'"},
    };
    dpb_status status;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_delay delay;
        if (dpb_delay_make(rows[i].delay, "here", rows[i].ranks, "there", WORKERS, 1, &delay) !=
            DPB_USAGE)
            fail_msg("'%s' for '%s' is not refused", rows[i].delay, rows[i].ranks);
        if (!strstr(dpb_first_error(&status), rows[i].message))
            fail_msg("'%s': the message is '%s'", rows[i].delay, dpb_first_error(&status));
        dpb_first_error_clear();
    }
}

/* ---- sleeping ------------------------------------------------------------------------------ */

TEST(test_sleep)
{
    const struct dpb_delay delay = make("constant(120 ms)", "1", 1);
    int64_t began_ns = dpb_now_ns();
    assert_int_equal(dpb_delay_sleep(&delay, 1, 0, NULL, NULL), DPB_OK);
    assert_true(dpb_now_ns() - began_ns >= 120000000);
}

struct looks {
    int64_t end_ns;
    int n;
};

static dpb_status look_for_a_while(void *context, bool *over)
{
    struct looks *looks = context;
    looks->n++;
    *over = dpb_now_ns() >= looks->end_ns;
    return DPB_OK;
}

/* The looks of the longest delay find room in the account of its step: they are further apart. */
TEST(test_looks)
{
    const struct dpb_delay delay = make("constant(60 s)", "1", 1);
    const int64_t length_ns = 60000000000, tried_ns = 200000000;
    struct looks looks = {.end_ns = dpb_now_ns() + tried_ns};
    assert_int_equal(dpb_delay_sleep(&delay, 1, 0, look_for_a_while, &looks), DPB_OK);
    assert_in_range(looks.n, 2, tried_ns / (length_ns / DPB_DELAY_LOOKS) + 2);
}

/* An interrupted run ends at a step's start: no delay is in its way. */
TEST(test_interrupted)
{
    const struct dpb_delay delay = make("constant(60 s)", "0", 1);
    assert_int_equal(dpb_board_create(1, 0, &dpb_world.board), DPB_OK);
    dpb_board_interrupt(dpb_world.board, SIGINT);
    alarm(5); /* a minute would end the test */
    assert_int_equal(dpb_delay_sleep(&delay, 0, 0, NULL, NULL), DPB_OK);
    alarm(0);
    dpb_board_destroy(dpb_world.board);
    dpb_world.board = NULL;
}

TEST_MAIN(make_trace, remove_trace)
