/* accelerator.c - see accelerator.h. */
#include "lib/accelerator/accelerator.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What bounds the numbers of a profile: an hour of computing, and what a graph can hold. */
static const double most_ns = 3.6e12, most_elements = UINT32_MAX, most_factor = 1e6;

struct reading {
    const char *file;
    char *why;
};

__attribute__((format(printf, 2, 3))) static bool refuse(const struct reading *r,
                                                         const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = snprintf(r->why, DPB_ACCELERATOR_WHY, "%.200s: ", r->file);
    vsnprintf(r->why + n, DPB_ACCELERATOR_WHY - (size_t)n, format, list);
    va_end(list);
    return false;
}

/* ---- where it lies ------------------------------------------------------------------------- */

/* The shared object or program that this code is in: profiles lie at a place known from there. */
static bool own_directory(char directory[PATH_MAX])
{
    static const char anchor;
    Dl_info info;
    const char *path = dladdr(&anchor, &info) != 0 && strchr(info.dli_fname, '/')
                           ? info.dli_fname
                           : "/proc/self/exe";
    if (!realpath(path, directory))
        return false;
    *strrchr(directory, '/') = '\0';
    return true;
}

/* A build has a link to profiles/ beside its programs; installed, they lie in share/dpbench. */
static void find(const char *file, char path[PATH_MAX])
{
    static const char *const places[] = {".", "..", "../share/dpbench", "../../share/dpbench"};
    char directory[PATH_MAX];
    snprintf(path, PATH_MAX, "%s", file);
    if (strchr(file, '/') || strchr(file, '.') || !own_directory(directory))
        return;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char there[2 * PATH_MAX + 64];
        snprintf(there, sizeof there, "%s/%s/profiles/%s.json", directory, places[i], file);
        if (strlen(there) < PATH_MAX && access(there, R_OK) == 0) {
            strcpy(path, there);
            return;
        }
    }
}

/* ---- its values ---------------------------------------------------------------------------- */

static bool text(const struct reading *r, const json_t *document, const char *key,
                 const char **value)
{
    *value = json_string_value(json_object_get(document, key));
    return (*value && **value) || refuse(r, "'%s' is no text", key);
}

/* A number from `least` to `most`; where the key is missing or null, `otherwise`; NaN: it must be
 * there. */
static bool number(const struct reading *r, const json_t *document, const char *key,
                   double otherwise, double least, double most, double *value)
{
    const json_t *found = json_object_get(document, key);
    if ((!found || json_is_null(found)) && !isnan(otherwise)) {
        *value = otherwise;
        return true;
    }
    *value = json_number_value(found);
    return (json_is_number(found) && *value >= least && *value <= most) ||
           refuse(r, "'%s' is no number from %g to %g", key, least, most);
}

static bool read_warmup(const struct reading *r, struct dpb_accelerator *made)
{
    const json_t *list = json_object_get(made->document, "warmup");
    made->n_warmup = json_array_size(list);
    if (list && !json_is_array(list) && !json_is_null(list))
        return refuse(r, "'warmup' is no list");
    if (made->n_warmup == 0)
        return true;
    made->warmup = calloc(made->n_warmup, sizeof *made->warmup);
    if (!made->warmup)
        return refuse(r, "out of memory");
    for (size_t i = 0; i < made->n_warmup; i++) {
        const json_t *item = json_array_get(list, i);
        made->warmup[i] = json_number_value(item);
        if (!json_is_number(item) || !(made->warmup[i] > 0) || made->warmup[i] > most_factor)
            return refuse(r, "'warmup' has a value that is no number above 0 and to %g",
                          most_factor);
    }
    return true;
}

static bool read_tensors(const struct reading *r, struct dpb_accelerator *made)
{
    const json_t *list = json_object_get(made->document, "tensors");
    const size_t n = json_array_size(list);
    if (n == 0 || n > DPB_ACCELERATOR_TENSORS)
        return refuse(r, "'tensors' is no list of 1 to %d tensors", DPB_ACCELERATOR_TENSORS);
    made->n_tensors = (uint32_t)n;
    made->tensors = calloc(n, sizeof *made->tensors);
    if (!made->tensors)
        return refuse(r, "out of memory");
    double last_ns = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        struct dpb_accelerator_tensor *tensor = &made->tensors[i];
        double elements, ready_ns;
        if (!text(r, item, "name", &tensor->name) ||
            !number(r, item, "elements", NAN, 1, most_elements, &elements) ||
            !number(r, item, "ready_ns", NAN, 0, (double)made->backward_ns, &ready_ns))
            return false;
        if (elements != floor(elements))
            return refuse(r, "tensor '%s' has %g elements", tensor->name, elements);
        if (ready_ns < last_ns)
            return refuse(r,
                          "tensor '%s' is ready before the one before it: tensors stand in the "
                          "order in which backward makes their gradients final",
                          tensor->name);
        last_ns = ready_ns;
        tensor->n_elements = (uint64_t)elements;
        tensor->ready_ns = llround(ready_ns);
        made->n_parameters += tensor->n_elements;
    }
    return true;
}

static bool read_values(const struct reading *r, struct dpb_accelerator *made)
{
    static const char *const kinds[] = {"measured", "published", "estimated"};
    const json_t *document = made->document;
    const char *schema = json_string_value(json_object_get(document, "schema"));
    double batch, macs, forward_ns, backward_ns;
    if (!schema || strcmp(schema, "dpbench.profile/1") != 0)
        return refuse(r, "this is no profile, schema dpbench.profile/1 (see `dpbench profile`)");
    if (!text(r, document, "accelerator", &made->name) ||
        !text(r, document, "model", &made->model) ||
        !text(r, document, "precision", &made->precision) ||
        !text(r, document, "kind", &made->kind) || !text(r, document, "source", &made->source) ||
        !number(r, document, "batch", NAN, 1, 1 << 30, &batch) ||
        !number(r, document, "macs_per_sample", 0, 0, 0x1p60, &macs) ||
        !number(r, document, "forward_ns", NAN, 0, most_ns, &forward_ns) ||
        !number(r, document, "backward_ns", NAN, 1, most_ns, &backward_ns) ||
        !number(r, document, "spread", NAN, 0, 1, &made->spread) ||
        !number(r, document, "common", 1, 0, 1, &made->common) ||
        !number(r, document, "update_elements_per_s", 0, 0, 1e18, &made->update_elements_per_s))
        return false;
    bool known = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        known = known || strcmp(made->kind, kinds[i]) == 0;
    if (!known)
        return refuse(r, "'kind' is none of measured, published, estimated");
    if (batch != floor(batch))
        return refuse(r, "'batch' is %g", batch);
    made->batch = (uint32_t)batch;
    made->macs = (uint64_t)macs;
    made->forward_ns = llround(forward_ns);
    made->backward_ns = llround(backward_ns);
    return read_warmup(r, made) && read_tensors(r, made);
}

bool dpb_accelerator_take(json_t *document, const char *file, struct dpb_accelerator *made,
                          char why[DPB_ACCELERATOR_WHY])
{
    const struct reading r = {.file = file, .why = why};
    why[0] = '\0';
    *made = (struct dpb_accelerator){.document = json_incref(document)};
    if (read_values(&r, made))
        return true;
    dpb_accelerator_release(made);
    return false;
}

/* "v100_resnet50/64" is v100_resnet50 with tensors of 1/64. Returns 64, and shortens `file`; 1: it
 * ends on no such number, or a file has that name. */
static uint32_t split_share(char *file)
{
    char *slash = strrchr(file, '/');
    const char *digits = slash ? slash + 1 : "";
    const size_t n = strlen(digits);
    if (n == 0 || n > 4 || digits[0] == '0' || strspn(digits, "0123456789") != n ||
        access(file, F_OK) == 0)
        return 1;
    const uint32_t share = (uint32_t)strtoul(digits, NULL, 10);
    *slash = '\0';
    return share;
}

/* Tensors of an n-th of their elements, at least one each, that take the same times. */
static void shrink(json_t *document, uint32_t n)
{
    char source[DPB_ACCELERATOR_WHY];
    size_t i;
    json_t *tensor;
    const json_t *update = json_object_get(document, "update_elements_per_s");
    const char *text = json_string_value(json_object_get(document, "source"));
    json_array_foreach(json_object_get(document, "tensors"), i, tensor)
    {
        const json_t *elements = json_object_get(tensor, "elements");
        if (json_is_integer(elements))
            json_object_set_new(tensor, "elements",
                                json_integer((json_integer_value(elements) + n - 1) / n));
    }
    if (json_is_number(update))
        json_object_set_new(document, "update_elements_per_s",
                            json_real(json_number_value(update) / n));
    snprintf(source, sizeof source, "tensors of 1/%" PRIu32 " of their size; %.400s", n,
             text ? text : "");
    if (text)
        json_object_set_new(document, "source", json_string(source));
}

bool dpb_accelerator_read(const char *file, struct dpb_accelerator *made,
                          char why[DPB_ACCELERATOR_WHY])
{
    char path[PATH_MAX], whole[PATH_MAX];
    json_error_t error;
    snprintf(whole, sizeof whole, "%s", file);
    const uint32_t share = split_share(whole);
    find(whole, path);
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!document && path[0] != '\0' && strcmp(path, whole) == 0 && !strpbrk(whole, "/."))
        return refuse(&(struct reading){.file = whole, .why = why},
                      "no profile of this name came with dpbench (profiles/), and no file has it");
    if (!document)
        return refuse(&(struct reading){.file = path, .why = why}, "%s", error.text);
    if (share > 1)
        shrink(document, share);
    const bool taken = dpb_accelerator_take(document, path, made, why);
    json_decref(document);
    return taken;
}

void dpb_accelerator_release(struct dpb_accelerator *accelerator)
{
    free(accelerator->warmup);
    free(accelerator->tensors);
    json_decref(accelerator->document);
    *accelerator = (struct dpb_accelerator){0};
}
