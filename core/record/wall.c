/* wall.c - see wall.h. */
#include "record/wall.h"

#include <math.h>

#include "base/json.h"
#include "base/text.h"
#include "record/summary.h"

enum { WARMUP, MEASURED, PARTS = DPB_SPENT_PARTS + 1 };

/* In the order of a job. */
static const struct {
    const char *name, *words;
    int spent; /* a dpb_spent; steps are divided */
    int of_steps;
} rows[PARTS] = {
    {"start_s", "start", DPB_SPENT_START, -1},
    {"connect_s", "connect", DPB_SPENT_CONNECT, -1},
    {"compile_s", "compile and tune", DPB_SPENT_COMPILE, -1},
    {"proof_s", "proof", DPB_SPENT_PROOF, -1},
    {"warmup_s", "warm-up", DPB_SPENT_STEPS, WARMUP},
    {"measured_s", "measured steps", DPB_SPENT_STEPS, MEASURED},
    {"eval_s", "eval", DPB_SPENT_EVAL, -1},
    {"checkpoints_s", "checkpoints", DPB_SPENT_CHECKPOINTS, -1},
    {"end_s", "end", DPB_SPENT_END, -1},
};

/* Steps before the first timed one, without pauses among them; at most `steps_ns`. */
static int64_t warmup_of(const struct dpb_journal *journal, int64_t steps_ns)
{
    const uint64_t n = dpb_journal_records(journal);
    const uint64_t timed_from = journal->timed_from < n ? journal->timed_from : n;
    const double dilation = journal->dilation > 1 ? journal->dilation : 1;
    double sum_ns = 0;
    for (uint64_t k = 0; k < timed_from; k++)
        sum_ns += dilation * (double)journal->records[k].step_ns;
    return n == timed_from || sum_ns > (double)steps_ns ? steps_ns : llround(sum_ns);
}

json_t *dpb_wall_to_json(struct dpb_board *board, const struct dpb_journal *journal)
{
    const int64_t now_ns = dpb_now_ns(), began_ns = board ? dpb_board_about(board)->command_ns : 0;
    int64_t spent_ns[DPB_SPENT_PARTS] = {0};
    if (began_ns == 0)
        return json_null();
    const bool opened = journal && journal->opened_ns != 0;
    for (int i = 0; opened && i < DPB_SPENT_PARTS; i++)
        spent_ns[i] = journal->spent_ns[i];
    spent_ns[DPB_SPENT_START] += (opened ? journal->opened_ns : now_ns) - began_ns;
    if (opened && journal->spending < DPB_SPENT_PARTS) /* a rank that died was in it to the end */
        spent_ns[journal->spending] += now_ns - journal->spent_from_ns;
    const int64_t warmup_ns = opened ? warmup_of(journal, spent_ns[DPB_SPENT_STEPS]) : 0;
    json_t *json = json_pack("{s:f}", "seconds", (double)(now_ns - began_ns) * 1e-9);
    for (size_t i = 0; i < PARTS; i++) {
        const int64_t ns = rows[i].of_steps == WARMUP     ? warmup_ns
                           : rows[i].of_steps == MEASURED ? spent_ns[DPB_SPENT_STEPS] - warmup_ns
                                                          : spent_ns[rows[i].spent];
        json_object_set_new(json, rows[i].name, json_real((double)ns * 1e-9));
    }
    return json;
}

void dpb_wall_print(const json_t *wall, FILE *out)
{
    char line[512];
    struct dpb_text text = dpb_text_in(line, sizeof line);
    const double seconds = dpb_json_number(wall, "seconds");
    if (!(seconds > 0)) /* an older result */
        return;
    for (size_t i = 0; i < PARTS; i++)
        if (dpb_json_number(wall, rows[i].name) >= 1e-3 * seconds)
            dpb_text_item(&text, ", ", "%s %.2f", rows[i].words,
                          dpb_json_number(wall, rows[i].name));
    fprintf(out, "  %-13s %.2f s: %s\n", "wall clock", seconds, line);
}
