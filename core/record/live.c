/* live.c - see live.h. */
#include "record/live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "measure/journal.h"

enum { RECENT = 32 }; /* steps whose mean is the rate */

static void add_time(struct dpb_text *text, double seconds)
{
    if (seconds < 60)
        dpb_text_add(text, "%.0f s", seconds);
    else if (seconds < 3600)
        dpb_text_add(text, "%.0f min", seconds / 60);
    else
        dpb_text_add(text, "%.1f h", seconds / 3600);
}

/* The last records of rank 0, as many as are there, up to RECENT, and whether warm-up is over. 0:
 * no step has ended. */
static uint64_t recent_of(struct dpb_board *board, const struct dpb_record **records, bool *timed)
{
    size_t bytes;
    const struct dpb_journal *journal = dpb_board_journal(board, 0, &bytes);
    if (dpb_board_about(board)->step_samples == 0 || bytes < sizeof *journal)
        return 0;
    *timed = __atomic_load_n(&journal->timed_from, __ATOMIC_RELAXED) != UINT64_MAX;
    const uint64_t capacity = (bytes - sizeof *journal) / sizeof(struct dpb_record);
    const uint64_t n = __atomic_load_n(&journal->n_records, __ATOMIC_ACQUIRE);
    if (n == 0 || n > capacity)
        return 0;
    const uint64_t k = n < RECENT ? n : RECENT;
    *records = &journal->records[n - k];
    return k;
}

/* NaN: no step has ended. */
static double steps_per_s(const struct dpb_record *records, uint64_t n)
{
    int64_t sum_ns = 0;
    for (uint64_t i = 0; i < n; i++)
        sum_ns += records[i].step_ns;
    return sum_ns > 0 ? (double)n * 1e9 / (double)sum_ns : NAN;
}

/* The time left of the job, and of the sweep behind it. */
static void add_left(struct dpb_board *board, double job_s, struct dpb_text *text)
{
    const struct dpb_board_about *about = dpb_board_about(board);
    const double elapsed_s = (double)(dpb_now_ns() - about->began_ns) * 1e-9;
    if (!isnan(job_s)) {
        dpb_text_add(text, "  ETA ");
        add_time(text, job_s);
    }
    if (about->n_left == 0)
        return;
    const double usual_s = isnan(about->usual_s) ? elapsed_s + job_s : about->usual_s;
    const double own_s = isnan(job_s) ? fmax(usual_s - elapsed_s, 0) : job_s;
    const double all_s = own_s + usual_s * (double)about->n_left;
    if (isnan(all_s))
        return;
    dpb_text_add(text, isnan(job_s) ? "  all " : ", all ");
    add_time(text, all_s);
}

/* Everything but the label. */
static void add_numbers(struct dpb_board *board, struct dpb_text *text)
{
    const struct dpb_status_page *page = dpb_board_page(board, 0);
    const struct dpb_record *records = NULL;
    const uint64_t step = __atomic_load_n(&page->step, __ATOMIC_RELAXED);
    const uint64_t n_steps = __atomic_load_n(&page->n_steps, __ATOMIC_RELAXED);
    bool timed = true;
    const uint64_t n = recent_of(board, &records, &timed);
    const double rate = steps_per_s(records, n);
    if (n == 0)
        dpb_text_add(text, "  %.*s", (int)sizeof page->phase - 1, page->phase);
    dpb_text_add(text, "  step %llu", (unsigned long long)step);
    if (n_steps > 0)
        dpb_text_add(text, " / %llu", (unsigned long long)n_steps);
    if (!timed)
        dpb_text_add(text, " (warm-up)");
    const double samples = rate * (double)dpb_board_about(board)->step_samples;
    if (!isnan(rate))
        dpb_text_add(text, samples < 1000 ? "  %.4g samples/s" : "  %.0f samples/s", samples);
    const struct dpb_board_about *about = dpb_board_about(board);
    if (about->emulated)
        dpb_text_add(text, "  emulated");
    else if (n > 0)
        dpb_text_add(text, "  loss %.4g", records[n - 1].loss);
    const double real_rate = about->dilation > 1 ? rate / about->dilation : rate;
    add_left(board, n_steps > step && !isnan(rate) ? (double)(n_steps - step) / real_rate : NAN,
             text);
}

/* Not within a character of UTF-8. */
static size_t cut_at(const char *text, size_t most)
{
    size_t n = strnlen(text, most + 1);
    if (n <= most)
        return n;
    for (n = most; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
        n--;
    return n;
}

/* The settings of a label without their names: "[3/24] shm 2" of "[3/24] comm.name=shm
 * run.workers=2". Values distinguish cells, names do not. */
static void drop_names(char *label)
{
    char *to = label;
    for (const char *from = label; *from != '\0';) {
        const size_t name = strspn(from, "abcdefghijklmnopqrstuvwxyz0123456789_.");
        from += from[name] == '=' ? name + 1 : 0;
        const size_t word = strcspn(from, " ") + strspn(from + strcspn(from, " "), " ");
        memmove(to, from, word);
        to += word;
        from += word;
    }
    *to = '\0';
}

void dpb_live_line(struct dpb_board *board, size_t columns, char *line, size_t capacity)
{
    char numbers[160], label[sizeof dpb_board_about(board)->label];
    struct dpb_text text = dpb_text_in(numbers, sizeof numbers);
    snprintf(label, sizeof label, "%.*s", (int)sizeof label - 1, dpb_board_about(board)->label);
    add_numbers(board, &text);
    const size_t most = columns < capacity ? columns : capacity - 1;
    const size_t room = most > text.length ? most - text.length : 0;
    if (strlen(label) > room)
        drop_names(label);
    const size_t n = cut_at(label, room);
    /* The numbers begin with two blanks. */
    const char *rest = n > 0 ? numbers : numbers + 2;
    const size_t rest_bytes = cut_at(rest, most - n);
    memcpy(line, label, n);
    memcpy(line + n, rest, rest_bytes);
    line[n + rest_bytes] = '\0';
}

void dpb_live_rank(struct dpb_board *board, uint32_t rank, size_t columns, char *line,
                   size_t capacity)
{
    const struct dpb_status_page *page = dpb_board_page(board, rank);
    struct dpb_text text = dpb_text_in(line, capacity);
    if (page->pid == 0)
        dpb_text_add(&text, "  rank %u  not started", rank);
    else
        dpb_text_add(&text, "  rank %u (%.*s, pid %d)  %.*s of step %llu", rank,
                     (int)sizeof page->host - 1, page->host, (int)page->pid,
                     (int)sizeof page->phase - 1, page->phase, (unsigned long long)page->step);
    if (page->peer != UINT32_MAX)
        dpb_text_add(&text, ", for rank %u", page->peer);
    line[cut_at(line, columns < capacity ? columns : capacity - 1)] = '\0';
}
