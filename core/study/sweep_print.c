/* sweep_print.c - the table of a sweep for people, and how to read it; from the document alone. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/host.h"
#include "study/json.h"
#include "study/result.h"
#include "study/sweep.h"

enum { WIDTH = 100, COLUMNS = 10, CELL = 40, GROUP = 512, MAX_NOTES = 4 };

static const char *const titles[COLUMNS] = {"strategy", "workers", "samples/s", "interval",
                                            "speedup",  "effic.",  "exposed",   "loss",
                                            "accuracy", "verified"};

/* One line of the table as text. */
struct line {
    char text[COLUMNS][CELL];
    const json_t *row;
};

static double number(const json_t *row, const char *path)
{
    return dpb_json_number(row, path);
}

static bool has_text(const json_t *row, const char *path, const char *text)
{
    return strcmp(dpb_json_text(row, path, ""), text) == 0;
}

static bool is_failed(const json_t *row)
{
    return !isfinite(number(row, "samples_per_s.median"));
}

/* ---- cells --------------------------------------------------------------------------------- */

static void print_rate(char *text, double rate)
{
    snprintf(text, CELL, rate < 1000 ? "%.1f" : "%.0f", rate);
}

DPB_PRINTF(3, 4) static void print_if(char *text, double value, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (isfinite(value))
        vsnprintf(text, CELL, format, list);
    else
        snprintf(text, CELL, "-");
    va_end(list);
}

static const char *verified_text(const json_t *row)
{
    const json_t *verified = json_object_get(row, "verified");
    if (json_is_null(verified))
        return "n/a";
    if (!json_is_true(verified))
        return "NO";
    return json_is_true(json_object_get(row, "proved")) ? "proved" : "yes";
}

static void fill_line(const json_t *row, struct line *line)
{
    char low[CELL / 2 - 3], high[CELL / 2 - 3];
    double speedup = number(row, "speedup");
    bool own_baseline = has_text(row, "speedup_over", "same strategy, 1 worker");
    line->row = row;
    snprintf(line->text[0], CELL, "%.20s", dpb_json_text(row, "strategy", "?"));
    print_if(line->text[1], number(row, "workers"), "%.0f%s", number(row, "workers"),
             json_is_true(json_object_get(row, "oversubscribed")) ? "!" : "");
    print_rate(line->text[2], number(row, "samples_per_s.median"));
    snprintf(low, sizeof low, number(row, "samples_per_s.high") < 1000 ? "%.1f" : "%.0f",
             number(row, "samples_per_s.low"));
    snprintf(high, sizeof high, number(row, "samples_per_s.high") < 1000 ? "%.1f" : "%.0f",
             number(row, "samples_per_s.high"));
    snprintf(line->text[3], CELL, "%s..%s%s%s%s%s", low, high,
             json_is_true(json_object_get(row, "too_short")) ? "<" : "",
             json_is_true(json_object_get(row, "gated")) &&
                     !json_is_true(json_object_get(row, "steady"))
                 ? "~"
                 : "",
             json_is_true(json_object_get(row, "disturbed")) ? "?" : "",
             json_is_true(json_object_get(row, "throttled")) ? "^" : "");
    print_if(line->text[4], speedup, "%.2f%s", speedup, own_baseline ? "*" : "");
    print_if(line->text[5], number(row, "efficiency"), "%.0f %%", 100 * number(row, "efficiency"));
    print_if(line->text[6], number(row, "comm_exposed_share"), "%.1f %%",
             100 * number(row, "comm_exposed_share"));
    print_if(line->text[7], number(row, "loss"), "%.4f", number(row, "loss"));
    print_if(line->text[8], number(row, "accuracy"), "%.2f %%", 100 * number(row, "accuracy"));
    snprintf(line->text[9], CELL, "%s", verified_text(row));
}

/* ---- groups: what a row has beside strategy and workers ------------------------------------ */

static void group_of(const json_t *row, char group[GROUP])
{
    const char *key;
    json_t *value;
    size_t at = 0;
    group[0] = '\0';
    json_object_foreach(json_object_get(row, "cell"), key, value)
    {
        if (strcmp(key, "comm.name") == 0 || strcmp(key, "run.workers") == 0 || at >= GROUP)
            continue;
        int n = snprintf(group + at, GROUP - at, "%s%s = %s", at > 0 ? ", " : "", key,
                         dpb_json_text(value, "", "?"));
        at += n > 0 ? (size_t)n : 0;
    }
}

/* Rows in the order of the table: by group as it first appears, within it by cell. */
static size_t order_rows(const json_t *rows, const json_t **ordered)
{
    size_t n = json_array_size(rows), n_ordered = 0;
    bool *taken = calloc(n + 1, sizeof *taken);
    for (size_t i = 0; taken != NULL && i < n; i++) {
        char group[GROUP], other[GROUP];
        group_of(json_array_get(rows, i), group);
        for (size_t k = i; k < n; k++) {
            group_of(json_array_get(rows, k), other);
            if (taken[k] || strcmp(group, other) != 0)
                continue;
            taken[k] = true;
            ordered[n_ordered++] = json_array_get(rows, k);
        }
    }
    free(taken);
    return n_ordered;
}

/* ---- the table ----------------------------------------------------------------------------- */

static void print_line(const struct line *line, const size_t width[COLUMNS], const char *gap,
                       FILE *out)
{
    fprintf(out, "%-*s", (int)width[0], line->text[0]);
    for (size_t c = 1; c < COLUMNS; c++)
        fprintf(out, "%s%*s", gap, (int)width[c], line->text[c]);
    fputc('\n', out);
}

static void print_failed(const struct line *line, size_t width, FILE *out)
{
    char text[512];
    snprintf(text, sizeof text, "%-*s  %s  %s: %s", (int)width, line->text[0], line->text[1],
             dpb_json_text(line->row, "status", "failed"),
             dpb_json_text(line->row, "error", "no run of it ended"));
    text[strcspn(text, "\n")] = '\0';
    if (strlen(text) > WIDTH)
        memcpy(text + WIDTH - 3, "...", 4);
    fprintf(out, "%s\n", text);
}

static void print_table(const struct line *lines, size_t n, FILE *out)
{
    struct line head = {0};
    size_t width[COLUMNS], total = 0;
    char group[GROUP], before[GROUP] = "";
    for (size_t c = 0; c < COLUMNS; c++) {
        snprintf(head.text[c], CELL, "%s", titles[c]);
        width[c] = strlen(titles[c]);
        for (size_t i = 0; i < n; i++)
            if (!is_failed(lines[i].row) && strlen(lines[i].text[c]) > width[c])
                width[c] = strlen(lines[i].text[c]);
        total += width[c];
    }
    const char *gap = total + 2 * (COLUMNS - 1) <= WIDTH ? "  " : " ";
    print_line(&head, width, gap, out);
    for (size_t i = 0; i < n; i++) {
        group_of(lines[i].row, group);
        if (strcmp(group, before) != 0)
            fprintf(out, "%s:\n", group);
        memcpy(before, group, sizeof before);
        if (is_failed(lines[i].row))
            print_failed(&lines[i], width[0], out);
        else
            print_line(&lines[i], width, gap, out);
    }
}

/* ---- how to read it ------------------------------------------------------------------------ */

/* A paragraph, broken at white space. */
DPB_PRINTF(2, 3) static void print_note(FILE *out, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    size_t column = 0;
    char *state = NULL;
    for (char *word = strtok_r(text, " ", &state); word != NULL;
         word = strtok_r(NULL, " ", &state)) {
        size_t length = strlen(word);
        if (column > 0 && column + 1 + length > WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%s", column > 0 ? " " : "", word);
    }
    fputc('\n', out);
}

static bool is_candidate(const json_t *row, double workers, const char *group)
{
    char own[GROUP];
    group_of(row, own);
    return !is_failed(row) && number(row, "workers") == workers && strcmp(own, group) == 0;
}

static bool is_faster(const json_t *row, const json_t *other)
{
    return other == NULL ||
           number(row, "samples_per_s.median") > number(other, "samples_per_s.median");
}

/* Whether a rate among the rows of one group and number of workers allows no conclusion: then says
 * whose, and why. */
static bool note_doubts(const struct line *lines, size_t n, double workers, const char *group,
                        FILE *out)
{
    char text[768] = "";
    size_t at = 0;
    for (size_t i = 0; i < DPB_DOUBTS; i++) {
        const char *reason = NULL;
        for (size_t k = 0; k < n && at < sizeof text; k++) {
            const json_t *row = lines[k].row;
            const char *own = is_candidate(row, workers, group) ? dpb_result_doubt(row, i) : NULL;
            if (own == NULL)
                continue;
            int written = snprintf(text + at, sizeof text - at, "%s%s",
                                   reason != NULL ? ", "
                                   : at > 0       ? "; "
                                                  : "",
                                   dpb_json_text(row, "strategy", "?"));
            at += written > 0 ? (size_t)written : 0;
            reason = own;
        }
        if (reason != NULL && at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, " %s", reason);
    }
    if (text[0] != '\0')
        print_note(out, "- %s%s%.0f worker%s: no conclusion (%s).", group, group[0] ? ": " : "",
                   workers, workers == 1 ? "" : "s", text);
    return text[0] != '\0';
}

/* Which strategy is fastest among the rows of one group and number of workers. */
static void note_fastest(const struct line *lines, size_t n, const json_t *like, const char *group,
                         FILE *out)
{
    double workers = number(like, "workers");
    const json_t *first = NULL, *second = NULL, *bound = NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *row = lines[i].row;
        if (!is_candidate(row, workers, group))
            continue;
        if (has_text(row, "consistency", "none")) {
            bound = is_faster(row, bound) ? row : bound;
        } else if (is_faster(row, first)) {
            second = first;
            first = row;
        } else if (is_faster(row, second)) {
            second = row;
        }
    }
    if (first == NULL || (second == NULL && bound == NULL) ||
        note_doubts(lines, n, workers, group, out))
        return;
    char text[512] = "", reach[192] = "";
    double best = number(first, "samples_per_s.median");
    if (second != NULL) {
        bool overlap = number(second, "samples_per_s.high") >= number(first, "samples_per_s.low");
        snprintf(text, sizeof text, ", %.2f times the next, %s%s",
                 best / number(second, "samples_per_s.median"),
                 dpb_json_text(second, "strategy", "?"),
                 overlap ? " (their intervals overlap: no difference is shown)" : "");
    }
    if (bound != NULL) {
        double most = number(bound, "samples_per_s.median");
        bool overlap = number(bound, "samples_per_s.high") >= number(first, "samples_per_s.low");
        snprintf(reach, sizeof reach, "; that is %.0f %% of the rate without any exchange%s",
                 100 * best / most,
                 !(best > most) ? ""
                 : overlap      ? " (their intervals overlap: no cost is shown)"
                                : " (more than can be: the machine was not the same)");
    }
    print_note(out, "- %s%s%.0f worker%s: %s is fastest%s%s.", group, group[0] ? ": " : "", workers,
               workers == 1 ? "" : "s", dpb_json_text(first, "strategy", "?"), text, reach);
}

/* One note for each group and number of workers; the first few of them. */
static void note_winners(const struct line *lines, size_t n, FILE *out)
{
    size_t n_notes = 0;
    for (size_t i = 0; i < n && n_notes < MAX_NOTES; i++) {
        char group[GROUP], other[GROUP];
        bool seen = is_failed(lines[i].row);
        group_of(lines[i].row, group);
        for (size_t k = 0; k < i && !seen; k++) {
            group_of(lines[k].row, other);
            seen = !is_failed(lines[k].row) && strcmp(group, other) == 0 &&
                   number(lines[k].row, "workers") == number(lines[i].row, "workers");
        }
        if (seen)
            continue;
        note_fastest(lines, n, lines[i].row, group, out);
        n_notes++;
    }
}

static bool any_line(const struct line *lines, size_t n, size_t column, char mark)
{
    for (size_t i = 0; i < n; i++)
        if (!is_failed(lines[i].row) && strchr(lines[i].text[column], mark) != NULL)
            return true;
    return false;
}

static void note_meanings(const json_t *document, const struct line *lines, size_t n, FILE *out)
{
    double repeats = number(document, "repeats"), steps = number(document, "accuracy_steps");
    bool independent = false, repeated = false, single = false;
    for (size_t i = 0; i < n; i++) {
        repeated |= number(lines[i].row, "runs") > 1;
        single |= number(lines[i].row, "runs") == 1;
        independent |= has_text(lines[i].row, "speedup_over", "independent, 1 worker");
    }
    print_note(out,
               "- samples/s: median of %.0f repeat%s, interval: %s; speedup: over %s with one "
               "worker, same cores a worker and batch%s; effic. = speedup / workers.",
               repeats, repeats == 1 ? "" : "s",
               !repeated ? "95 % of the run's mean"
               : single  ? "slowest .. fastest repeat (of one: 95 % of its mean)"
                         : "slowest .. fastest repeat",
               independent ? "independent" : "the same strategy",
               independent && any_line(lines, n, 4, '*') ? " (*: over the same strategy)" : "");
    char accuracy[128] = "";
    if (steps > 0 && isfinite(number(document, "accuracy_workers")))
        snprintf(accuracy, sizeof accuracy,
                 "; accuracy: of the test set after %.0f steps with %.0f workers", steps,
                 number(document, "accuracy_workers"));
    print_note(
        out,
        "- exposed: share of the step in which computing waits for communication; loss: mean "
        "over the last tenth of the first %.0f samples%s. independent never exchanges: an "
        "upper bound, no training of one model.",
        number(document, "loss_samples"), accuracy);
    if (any_line(lines, n, 1, '!'))
        print_note(out, "- !: more processes or data threads than cores; these rates say little.");
    if (any_line(lines, n, 3, '<'))
        print_note(out, "- <: some runs timed less than 10 steps or 0.5 s: too short to conclude.");
    if (any_line(lines, n, 3, '~'))
        print_note(out, "- ~: some runs were timed before their steps were steady.");
    if (any_line(lines, n, 3, '?'))
        print_note(out,
                   "- ?: other processes, a quota or heat took a part of the job's cores during "
                   "some runs; their warnings[] say how much.");
    if (any_line(lines, n, 3, '^'))
        print_note(out, "- ^: power, heat or the like held the clocks of a GPU down during some "
                        "runs; their warnings[] say what and for how long.");
}

static void print_warnings(const json_t *document, FILE *out)
{
    const json_t *warning;
    size_t i;
    json_array_foreach(json_object_get(document, "warnings"), i, warning)
    {
        print_note(out, "warning: %s: %s", dpb_json_text(warning, "code", "?"),
                   dpb_json_text(warning, "text", "?"));
    }
    if (!has_text(document, "status", "ok"))
        print_note(out, "%s: %s", dpb_json_text(document, "status", "?"),
                   dpb_json_text(document, "error", "what was measured until then"));
}

void dpb_sweep_print(const json_t *document, FILE *out)
{
    const json_t *rows = json_object_get(document, "rows");
    size_t n_rows = json_array_size(rows);
    const json_t **ordered = calloc(n_rows + 1, sizeof *ordered);
    struct line *lines = calloc(n_rows + 1, sizeof *lines);
    size_t n = ordered != NULL && lines != NULL ? order_rows(rows, ordered) : 0;
    for (size_t i = 0; i < n; i++)
        fill_line(ordered[i], &lines[i]);
    if (n > 0) {
        print_table(lines, n, out);
        fputc('\n', out);
        note_winners(lines, n, out);
        note_meanings(document, lines, n, out);
    }
    print_warnings(document, out);
    free(ordered);
    free(lines);
}
