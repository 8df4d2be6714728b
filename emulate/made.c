/* made.c - see made.h. */
#include "emulate/made.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "lib/accelerator/accelerator.h"

dpb_status dpb_made_add(struct dpb_made *made, const char *name, uint64_t n_elements,
                        double ready_ns)
{
    if (made->n_tensors == made->capacity) {
        const size_t capacity = made->capacity ? 2 * made->capacity : 64;
        struct dpb_made_tensor *larger = realloc(made->tensors, capacity * sizeof *larger);
        DPB_TRY(dpb_allocated(larger));
        made->tensors = larger;
        made->capacity = capacity;
    }
    char *copy = strdup(name);
    DPB_TRY(dpb_allocated(copy));
    made->tensors[made->n_tensors++] =
        (struct dpb_made_tensor){.name = copy, .n_elements = n_elements, .ready_ns = ready_ns};
    return DPB_OK;
}

void dpb_made_scale(struct dpb_made *made, double factor)
{
    for (size_t i = 0; i < made->n_tensors; i++)
        made->tensors[i].ready_ns *= factor;
}

void dpb_made_release(struct dpb_made *made)
{
    for (size_t i = 0; i < made->n_tensors; i++)
        free(made->tensors[i].name);
    free(made->tensors);
    json_decref(made->from);
    *made = (struct dpb_made){0};
}

/* ---- the document -------------------------------------------------------------------------- */

static json_t *tensors_to_json(const struct dpb_made *made, double backward_ns)
{
    json_t *list = json_array();
    for (size_t i = 0; i < made->n_tensors; i++) {
        const struct dpb_made_tensor *tensor = &made->tensors[i];
        const double ready_ns = fmin(fmax(round(tensor->ready_ns), 0), backward_ns);
        json_array_append_new(
            list, json_pack("{s:o, s:I, s:I}", "name", dpb_json_string(tensor->name), "elements",
                            (json_int_t)tensor->n_elements, "ready_ns", (json_int_t)ready_ns));
    }
    return list;
}

/* To six digits, which is more than is known. */
static json_t *rounded(double value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.6g", value);
    return dpb_json_real(strtod(digits, NULL));
}

/* The step is rounded once, so that forward and backward together are it. */
static json_t *to_json(const struct dpb_made *made)
{
    const double forward_ns = round(made->forward_ns);
    const double backward_ns = round(made->forward_ns + made->backward_ns) - forward_ns;
    json_t *document = json_pack(
        "{s:s, s:o, s:o, s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "schema", "dpbench.profile/1",
        "accelerator", dpb_json_string(made->accelerator), "model", dpb_json_string(made->model),
        "precision", dpb_json_string(made->precision), "kind", made->kind, "source",
        dpb_json_string(made->source), "batch", (json_int_t)made->batch, "macs_per_sample",
        (json_int_t)made->macs, "forward_ns", (json_int_t)forward_ns, "backward_ns",
        (json_int_t)backward_ns, "spread", rounded(made->spread));
    if (made->n_warmup > 0) {
        json_t *warmup = json_array();
        for (size_t i = 0; i < made->n_warmup; i++)
            json_array_append_new(warmup, rounded(made->warmup[i]));
        json_object_set_new(document, "warmup", warmup);
    }
    if (made->update_elements_per_s > 0)
        json_object_set_new(document, "update_elements_per_s",
                            rounded(made->update_elements_per_s));
    json_object_set_new(document, "tensors", tensors_to_json(made, backward_ns));
    return document;
}

dpb_status dpb_made_document(const struct dpb_made *made, json_t **document)
{
    static const double most = 0x1p62; /* what a cast takes; readers allow less */
    struct dpb_accelerator taken;
    char why[DPB_ACCELERATOR_WHY];
    if (!(made->forward_ns >= 0) || !(made->backward_ns >= 0) ||
        !(made->forward_ns + made->backward_ns < most) || !(made->macs < most))
        return dpb_fail(DPB_USAGE, "the times that this makes are no times of a step");
    json_t *json = to_json(made);
    DPB_TRY(dpb_allocated(json));
    if (!dpb_accelerator_take(json, "the profile that this makes", &taken, why)) {
        json_decref(json);
        return dpb_fail(DPB_USAGE, "%s", why);
    }
    dpb_accelerator_release(&taken);
    *document = json;
    return DPB_OK;
}

static void write_value(const json_t *value, FILE *out)
{
    json_dumpf(value, out, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
}

static void write_string(const char *string, FILE *out)
{
    json_t *value = json_string(string);
    write_value(value, out);
    json_decref(value);
}

void dpb_profile_write(const json_t *document, FILE *out)
{
    const char *before = "{\n";
    dpb_each_member(document, key, value) {
        fprintf(out, "%s  ", before);
        write_string(key, out);
        fprintf(out, ": ");
        before = ",\n";
        if (strcmp(key, "tensors") != 0) {
            write_value(value, out);
            continue;
        }
        for (size_t i = 0; i < json_array_size(value); i++) {
            fprintf(out, "%s\n    ", i == 0 ? "[" : ",");
            write_value(json_array_get(value, i), out);
        }
        fprintf(out, "\n  ]");
    }
    fprintf(out, "\n}\n");
}

/* ---- for people ---------------------------------------------------------------------------- */

/* When a tenth, two tenths, ... of the gradient are final. */
static void show_ready(const struct dpb_accelerator *profile, FILE *out)
{
    enum { PARTS = 10 };
    uint64_t sum = 0;
    uint32_t i = 0;
    fprintf(out, "\nfinal   after ms of backward   with\n");
    for (int part = 1; part <= PARTS; part++) {
        while (i < profile->n_tensors &&
               (double)sum < (double)part / PARTS * (double)profile->n_parameters)
            sum += profile->tensors[i++].n_elements;
        const struct dpb_accelerator_tensor *tensor = &profile->tensors[i - 1];
        fprintf(out, "%4d %%  %20.3f   %s\n", 100 * part / PARTS, (double)tensor->ready_ns / 1e6,
                tensor->name);
    }
}

void dpb_profile_show(const json_t *document, FILE *out)
{
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY];
    json_t *printable = dpb_json_printable(document);
    if (!printable || !dpb_accelerator_take(printable, "the profile", &profile, why)) {
        fprintf(out, "%s\n", printable ? why : "out of memory");
        json_decref(printable);
        return;
    }
    const double step_s = (double)(profile.forward_ns + profile.backward_ns) / 1e9;
    const double samples = profile.batch;
    fprintf(out, "%s, %s, %s: %s (%s)\n\n", profile.name, profile.model, profile.precision,
            profile.kind, profile.source);
    fprintf(out, "step      %.3f ms of %u samples: forward %.3f, backward %.3f; spread %.2f %%\n",
            step_s * 1e3, profile.batch, (double)profile.forward_ns / 1e6,
            (double)profile.backward_ns / 1e6, 100 * profile.spread);
    fprintf(out, "rate      %.5g samples/s", samples / step_s);
    if (profile.macs > 0)
        fprintf(out, ", %.2f TFLOP/s (6 a multiply-accumulate of the forward pass)",
                6 * (double)profile.macs * samples / step_s / 1e12);
    fprintf(out, "\ngradient  %llu elements in %u tensors, %.1f MB in fp32\n",
            (unsigned long long)profile.n_parameters, profile.n_tensors,
            4 * (double)profile.n_parameters / 1e6);
    show_ready(&profile, out);
    dpb_accelerator_release(&profile);
    json_decref(printable);
}
