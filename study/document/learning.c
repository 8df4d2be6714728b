/* learning.c - see learning.h. */
#include "study/document/learning.h"

#include <math.h>

#include "base/json.h"
#include "study/document/spill.h"
#include "study/document/target.h"

/* Means of a run's losses over the first and the last tenth of so many steps. */
static void add_losses(const json_t *run, size_t n_steps, double *start, double *end)
{
    json_t *losses = dpb_run_part(run, "loss");
    const size_t tenth = n_steps / 10 > 0 ? n_steps / 10 : 1;
    *start += n_steps > 0 ? 0 : NAN;
    for (size_t k = 0; k < tenth && n_steps > 0; k++) {
        *start += dpb_json_item(losses, k) / (double)tenth;
        *end += dpb_json_item(losses, n_steps - tenth + k) / (double)tenth;
    }
    json_decref(losses);
}

json_t *dpb_learning_of_runs(const json_t *const *runs, size_t n)
{
    double samples = INFINITY, start = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        const double own =
            (double)dpb_run_size(runs[i], "loss") * dpb_json_number(runs[i], "batch.global");
        samples = own > 0 ? fmin(samples, own) : -1; /* of documents from anywhere */
        if (samples < 0)
            return json_null();
    }
    if (!(samples >= 1 && samples < 1e18))
        return json_null();
    for (size_t i = 0; i < n; i++) {
        const size_t n_steps = (size_t)(samples / dpb_json_number(runs[i], "batch.global"));
        add_losses(runs[i], n_steps, &start, &end);
    }
    const double epoch = dpb_json_number(runs[0], "batch.per_epoch");
    return json_pack("{s:I, s:o, s:o, s:o, s:b, s:n}",                              //
                     "samples", (json_int_t)samples,                                //
                     "start", dpb_json_real(start / (double)n),                     //
                     "end", dpb_json_real(end / (double)n),                         //
                     "chance",                                                      //
                     dpb_json_real(log(dpb_json_number(runs[0], "model.classes"))), //
                     "epoch", epoch > 0 && samples >= epoch,                        //
                     "learned");
}

/* Whether a loss of the row has fallen. Classes that nobody knows: below its start, then. */
static bool has_fallen(const json_t *row, double loss)
{
    const double start = dpb_json_number(row, "learning.start");
    const double chance = dpb_json_number(row, "learning.chance");
    return isfinite(loss) && loss < 0.98 * (chance > 0 ? chance : start) && !(loss > start);
}

/* Whether another row of the task has learned by as many samples as all rows have. */
static bool is_outdone(const json_t *rows, const json_t *row)
{
    dpb_each_item(rows, i, other)
        if (other != row && dpb_target_same_task(row, other) &&
            has_fallen(other, dpb_json_number(other, "loss")))
            return true;
    return false;
}

void dpb_learning_judge(json_t *rows)
{
    dpb_each_item(rows, i, row) {
        json_t *learning = json_object_get(row, "learning");
        if (!json_is_object(learning))
            continue;
        const double end = dpb_json_number(learning, "end");
        const bool fallen = has_fallen(row, end);
        const bool judged =
            !isfinite(end) || dpb_json_true(learning, "epoch") || is_outdone(rows, row);
        json_object_set_new(learning, "learned",
                            fallen   ? json_true()
                            : judged ? json_false()
                                     : json_null());
    }
}

bool dpb_learning_failed(const json_t *row)
{
    return json_is_false(json_object_get(json_object_get(row, "learning"), "learned"));
}
