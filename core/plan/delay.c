/* delay.c - see delay.h. */
#include "plan/delay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/lines.h"
#include "base/log.h"
#include "base/parse.h"
#include "dpbench/random.h"
#include "world/futex.h"
#include "world/world.h"

static const int64_t least_look_ns = 500000;
static const double longest_ns = 60e9;

/* By kind; of a second number its bounds, where most is not 0. */
static const char *const names[] = {"none", "constant", "exponential", "pareto", "chance"};
static const double least[] = {0, 0, 0, 1.2, 1e-6}, most[] = {0, 0, 0, 100, 1};

/* ---- from text ----------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " ");
}

/* Copies [from, to) without the blanks around it. False: too long. */
static bool copy_word(const char *from, const char *to, char word[64])
{
    from = skip_blanks(from);
    while (to > from && to[-1] == ' ')
        to--;
    if (to - from >= 64)
        return false;
    snprintf(word, 64, "%.*s", (int)(to - from), from);
    return true;
}

/* "TIME)" or "TIME, SHAPE)", as the kind says, to the end of the text. */
static bool parse_numbers(const char *at, struct dpb_delay *made)
{
    const bool shaped = most[made->kind] > 0;
    const char *end = strchr(at, ')'), *comma = strchr(at, ',');
    char word[64];
    uint64_t time_ns;
    if (!end || *skip_blanks(end + 1) || shaped != (comma != NULL))
        return false;
    if (!copy_word(at, comma ? comma : end, word) ||
        dpb_parse_quantity(word, dpb_time_units, NULL, &time_ns) != DPB_PARSED)
        return false;
    made->time_ns = (double)time_ns;
    if (shaped &&
        (!copy_word(comma + 1, end, word) || dpb_parse_real(word, &made->shape) != DPB_PARSED ||
         !(made->shape >= least[made->kind] && made->shape <= most[made->kind])))
        return false;
    return time_ns > 0 && made->time_ns <= longest_ns;
}

/* "FILE)", to the end of the text. */
static bool parse_file(const char *at, struct dpb_delay *made, char *file, size_t size)
{
    const size_t length = strlen(at);
    made->kind = DPB_DELAY_TRACE;
    return length > 1 && length < size && at[length - 1] == ')' &&
           snprintf(file, size, "%.*s", (int)length - 1, at) > 0;
}

/* `file`: where a trace is; else "". */
static bool parse_delay(const char *text, struct dpb_delay *made, char *file, size_t size)
{
    const char *open = strchr(text, '(');
    char name[64];
    if (!copy_word(text, open ? open : text + strlen(text), name))
        return false;
    file[0] = '\0';
    if (open && strcmp(name, "trace") == 0)
        return parse_file(open + 1, made, file, size);
    for (int kind = DPB_DELAY_NONE; kind <= DPB_DELAY_CHANCE; kind++)
        if (strcmp(name, names[kind]) == 0) {
            made->kind = (dpb_delay_kind)kind;
            return kind == DPB_DELAY_NONE ? !open : open && parse_numbers(open + 1, made);
        }
    return false;
}

bool dpb_delay_file(const char *delay, char *file, size_t size)
{
    struct dpb_delay made = {.kind = DPB_DELAY_NONE};
    return parse_delay(delay, &made, file, size) && made.kind == DPB_DELAY_TRACE;
}

static bool parse_ranks(const char *text, uint32_t n_workers, struct dpb_delay *made)
{
    const bool all = strcmp(text, "all") == 0;
    for (uint32_t rank = 0; rank < n_workers && all; rank++)
        made->ranks[rank] = true;
    if (all)
        return true;
    for (const char *at = text;; at++) {
        char *end;
        at = skip_blanks(at);
        unsigned long long rank = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || rank >= n_workers || made->ranks[rank])
            return false;
        made->ranks[rank] = true;
        at = skip_blanks(end);
        if (*at == '\0')
            return true;
        if (*at != ',')
            return false;
    }
}

/* ---- from a file --------------------------------------------------------------------------- */

/* A bare number is in ms, and may have an exponent, as programs write it. */
static bool parse_time(const char *text, uint64_t *time_ns)
{
    double ms;
    if (dpb_parse_quantity(text, dpb_time_units, "ms", time_ns) == DPB_PARSED)
        return (double)*time_ns <= longest_ns;
    if (!strpbrk(text, "eE") || dpb_parse_real(text, &ms) != DPB_PARSED || ms < 0 ||
        ms * 1e6 > longest_ns)
        return false;
    *time_ns = (uint64_t)llround(ms * 1e6);
    return true;
}

static dpb_status add_delay(struct dpb_delay *made, const char *file, int number, const char *line)
{
    uint64_t time_ns;
    if (!parse_time(line, &time_ns))
        return dpb_fail(DPB_USAGE,
                        "%s:%d: '%s' is not a delay; a line of a trace is one time from 0 to 60 "
                        "s, as in 12.5, in ms where there is no unit",
                        file, number, line);
    if ((made->n_trace & (made->n_trace - 1)) == 0) { /* full: it has room for a power of two */
        int64_t *more =
            realloc(made->trace_ns, (made->n_trace ? 2 * made->n_trace : 1) * sizeof *more);
        DPB_TRY(dpb_allocated(more));
        made->trace_ns = more;
    }
    made->trace_ns[made->n_trace++] = (int64_t)time_ns;
    return DPB_OK;
}

static dpb_status read_trace(struct dpb_delay *made, const char *origin, const char *path)
{
    char line[64], place[256];
    snprintf(place, sizeof place, "%s: run.delay", origin);
    dpb_fail_at(place);
    struct dpb_lines lines = dpb_lines_open(path);
    while (dpb_lines_next(&lines, line, sizeof line))
        lines.status = add_delay(made, path, lines.number, line);
    if (lines.status == DPB_OK && made->n_trace == 0)
        lines.status = dpb_fail(DPB_USAGE, "%s has no line", path);
    dpb_fail_at(NULL);
    dpb_lines_close(&lines);
    return lines.status;
}

dpb_status dpb_delay_make(const char *delay, const char *delay_origin, const char *ranks,
                          const char *ranks_origin, uint32_t n_workers, uint64_t seed,
                          struct dpb_delay *made)
{
    char file[4096];
    *made = (struct dpb_delay){.seed = seed, .n_workers = n_workers, .dilation = 1};
    if (!parse_delay(delay, made, file, sizeof file))
        return dpb_fail(DPB_USAGE,
                        "%s: run.delay = '%s' is none of: none, constant(20 ms), exponential(20 "
                        "ms), pareto(20 ms, 1.5), chance(50 ms, 0.05), trace(FILE); times are more "
                        "than 0 and up to 60 s, shapes from 1.2 to 100, chances above 0 and up to "
                        "1",
                        delay_origin, delay);
    if (!parse_ranks(ranks, n_workers, made))
        return dpb_fail(DPB_USAGE,
                        "%s: run.delay_ranks = '%s' is neither 'all' nor a list of different "
                        "workers below %u, as in 0,2",
                        ranks_origin, ranks, n_workers);
    if (made->kind != DPB_DELAY_TRACE)
        return DPB_OK;
    const dpb_status status = read_trace(made, delay_origin, file);
    if (status != DPB_OK)
        dpb_delay_destroy(made);
    return status;
}

void dpb_delay_destroy(struct dpb_delay *delay)
{
    free(delay->trace_ns);
    *delay = (struct dpb_delay){.kind = DPB_DELAY_NONE};
}

/* ---- delays -------------------------------------------------------------------------------- */

int64_t dpb_delay_of(const struct dpb_delay *delay, uint32_t rank, uint64_t step)
{
    if (delay->kind == DPB_DELAY_NONE || !delay->ranks[rank])
        return 0;
    if (delay->kind == DPB_DELAY_TRACE)
        return delay->trace_ns[(step * delay->n_workers + rank) % delay->n_trace];
    struct dpb_random4 word =
        dpb_random(delay->seed, DPB_STREAM_DELAY, rank, (uint32_t)step, (uint32_t)(step >> 32), 0);
    const double u = ((double)word.v[0] + 1.0) * 0x1p-32;
    switch (delay->kind) {
    case DPB_DELAY_EXPONENTIAL:
        return llround(-delay->time_ns * log(u));
    case DPB_DELAY_PARETO:
        return llround(delay->time_ns * pow(u, -1.0 / delay->shape));
    case DPB_DELAY_CHANCE:
        return u <= delay->shape ? llround(delay->time_ns) : 0;
    default:
        return llround(delay->time_ns);
    }
}

dpb_status dpb_delay_sleep(const struct dpb_delay *delay, uint32_t rank, uint64_t step,
                           dpb_delay_look look, void *context)
{
    const int64_t length_ns = llround((double)dpb_delay_of(delay, rank, step) * delay->dilation);
    const int64_t apart_ns = length_ns / DPB_DELAY_LOOKS;
    const int64_t look_ns = apart_ns > least_look_ns ? apart_ns : least_look_ns;
    const int64_t slice_ns = look && look_ns < DPB_WAIT_SLICE_NS ? look_ns : DPB_WAIT_SLICE_NS;
    if (length_ns == 0)
        return DPB_OK;
    const int64_t until_ns = dpb_now_ns() + length_ns;
    dpb_world_note("delay", UINT64_MAX, UINT32_MAX);
    for (int64_t now_ns; (now_ns = dpb_now_ns()) < until_ns;) {
        const int64_t rest_ns = until_ns - now_ns;
        const struct timespec nap = {.tv_nsec = (long)(rest_ns < slice_ns ? rest_ns : slice_ns)};
        bool over = false;
        if (look)
            DPB_TRY(look(context, &over));
        if (over || (dpb_world.board && dpb_board_interrupted(dpb_world.board)))
            return DPB_OK;
        nanosleep(&nap, NULL);
        if (dpb_wait_is_over())
            return dpb_wait_cancelled(&(struct dpb_wait){.step = step, .purpose = "run.delay"});
    }
    return DPB_OK;
}
