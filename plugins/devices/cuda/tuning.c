/*
 * tuning.c - which algorithm of cuDNN is the fastest for a convolution: tried once, and kept in a
 * file.
 *
 * A line of the file is
 *
 *     GPU <tab> cuDNN's version <tab> call, type, shapes <tab> algorithm <tab> kind of arithmetic
 *
 * and of a convolution with statistics (conv_graph.c) the rank of its plan, or -1: alone is faster,
 * and 0. Lines are appended by one write each time a program was tuned, so several processes may
 * share the file; of equal keys the last counts. What the file names and cuDNN does not offer is
 * tried anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"

enum { PATH_BYTES = 4096, LINE_BYTES = 512, TRIES = 3, FILE_MOST = 16 << 20 };

struct tuning {
    struct program *p;
    char path[PATH_BYTES]; /* "": none */
    char *known;           /* the file's content */
    char *found;           /* lines to append; NULL: none yet */
    size_t found_bytes, found_capacity;
};

/* ---- the file ------------------------------------------------------------------------------ */

/* option "auto": below the user's cache directory. */
static void find_path(const struct options *options, char path[PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    path[0] = 0;
    if (strcmp(options->tuning, "auto") != 0)
        snprintf(path, PATH_BYTES, "%s", options->tuning);
    else if (cache && cache[0])
        snprintf(path, PATH_BYTES, "%s/dpbench-cuda-tuning", cache);
    else if (home && home[0])
        snprintf(path, PATH_BYTES, "%s/.cache/dpbench-cuda-tuning", home);
}

/* NULL: not there, or no memory. */
static char *read_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &about) != 0 || about.st_size > FILE_MOST || about.st_size < 0)
        about.st_size = 0;
    size_t n = (size_t)about.st_size, have = 0;
    char *text = malloc(n + 1);
    while (text && have < n) {
        ssize_t got = read(fd, text + have, n - have);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    if (text)
        text[have] = 0;
    close(fd);
    return text;
}

static void append_file(const struct tuning *tuning)
{
    if (tuning->found_bytes == 0 || !tuning->path[0])
        return;
    int fd = open(tuning->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    ssize_t written = -1;
    if (fd >= 0)
        written = write(fd, tuning->found, tuning->found_bytes);
    if (written != (ssize_t)tuning->found_bytes)
        cuda_host->warn("tuning_not_kept",
                        "device cuda: the algorithms that were tried could not be kept in %s (%s): "
                        "every run tries them; set device.tuning",
                        tuning->path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* The last line of that key: its algorithm and arithmetic. */
static bool look_up(const char *text, const char *key, int *algorithm, int *math)
{
    bool found = false;
    size_t n = strlen(key);
    for (const char *line = text; line && *line;) {
        int a, m;
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "\t%d\t%d", &a, &m) == 2) {
            *algorithm = a;
            *math = m;
            found = true;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return found;
}

bool cuda_tuning_known(const struct options *options, const char *key, int *first, int *second)
{
    char path[PATH_BYTES];
    if (strcmp(options->tuning, "no") == 0)
        return false;
    find_path(options, path);
    char *text = path[0] ? read_file(path) : NULL;
    bool found = look_up(text, key, first, second);
    free(text);
    return found;
}

static dpb_status remember(struct tuning *tuning, const char *key, int algorithm, int math)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line, "%s\t%d\t%d\n", key, algorithm, math);
    if (tuning->found_bytes + (size_t)n >= tuning->found_capacity) {
        size_t capacity = 2 * tuning->found_capacity + LINE_BYTES;
        char *more = realloc(tuning->found, capacity);
        if (!more)
            return cuda_no_memory();
        tuning->found = more;
        tuning->found_capacity = capacity;
    }
    memcpy(tuning->found + tuning->found_bytes, line, (size_t)n + 1);
    tuning->found_bytes += (size_t)n;
    return DPB_OK;
}

void cuda_tuning_key(const struct program *p, const struct dpb_node *node, const char *call,
                     char key[TUNING_KEY_BYTES])
{
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cuda_input(p, node, 0)->shape;
    snprintf(key, TUNING_KEY_BYTES,
             "%s\t%zu\t%s %s n%u c%u h%u w%u k%u %ux%u stride %ux%u pad %u,%u,%u,%u%s",
             p->device->name, cudnnGetVersion(), call, dpb_precision_name(p->args.precision),
             p->args.batch, in.c, in.h, in.w, node->shape.c, w->kernel_h, w->kernel_w, w->stride_h,
             w->stride_w, w->pad_top, w->pad_bottom, w->pad_left, w->pad_right,
             p->device->options.layout == LAYOUT_NCHW ? " NCHW" : "");
}

/* ---- trying -------------------------------------------------------------------------------- */

/* A step as it stands, and what comes behind it; NULL: nothing. */
struct trial {
    const struct program *p;
    const struct step *step, *next;
};

static dpb_status run_trial(const void *trial_)
{
    const struct trial *trial = trial_;
    DPB_TRY(trial->step->run(trial->p, trial->step));
    return trial->next ? trial->next->run(trial->p, trial->next) : DPB_OK;
}

static dpb_status time_steps(const struct tuning *tuning, const struct step *step,
                             const struct step *next, float *best_ms)
{
    const struct trial trial = {tuning->p, step, next};
    return cuda_time_best(tuning->p, step->node, step->what, run_trial, &trial, TRIES, best_ms);
}

static void put_first(struct conv *conv, enum conv_call call, uint32_t which)
{
    struct conv_choice *choices = conv->call[call].choices;
    const struct conv_choice chosen = choices[which];
    choices[which] = choices[0];
    choices[0] = chosen;
}

static dpb_status try_choices(const struct tuning *tuning, const struct step *step,
                              struct conv *conv, enum conv_call call)
{
    float best_ms = 1e30f;
    uint32_t best = 0;
    for (uint32_t i = 0; i < conv->call[call].n; i++) {
        float ms;
        put_first(conv, call, i);
        DPB_TRY(time_steps(tuning, step, NULL, &ms));
        put_first(conv, call, i);
        if (ms < best_ms) {
            best_ms = ms;
            best = i;
        }
    }
    put_first(conv, call, best);
    return DPB_OK;
}

/* Of an earlier convolution of the same shape here, or else of the file. */
static bool take_known(const struct tuning *tuning, const char *key, struct conv *conv,
                       enum conv_call call)
{
    int algorithm, math;
    if (!look_up(tuning->found, key, &algorithm, &math) &&
        !look_up(tuning->known, key, &algorithm, &math))
        return false;
    for (uint32_t i = 0; i < conv->call[call].n; i++) {
        const struct conv_choice *choice = &conv->call[call].choices[i];
        if (choice->algorithm == algorithm && (int)choice->math == math) {
            put_first(conv, call, i);
            return true;
        }
    }
    return false;
}

static dpb_status tune_step(struct tuning *tuning, const struct step *step, enum conv_call call)
{
    static const char *const calls[CONV_CALLS] = {"forward", "data", "weights"};
    struct conv *conv = cuda_plan(tuning->p, step->node)->conv;
    char key[TUNING_KEY_BYTES];
    cuda_tuning_key(tuning->p, step->node, calls[call], key);
    if (conv->call[call].n < 2 || take_known(tuning, key, conv, call))
        return DPB_OK;
    DPB_TRY(try_choices(tuning, step, conv, call));
    const struct conv_choice *best = &conv->call[call].choices[0];
    return remember(tuning, key, best->algorithm, (int)best->math);
}

/* A convolution's plans with statistics and, unless device.fusion = on, the convolution by its
 * fastest algorithm: each with the step that makes moments of what it leaves. */
static dpb_status tune_fused(struct tuning *tuning, size_t at)
{
    const struct program *p = tuning->p;
    const struct step *step = &p->forward.steps[at];
    struct fused *fused = cuda_plan(p, step->node)->fused;
    const int first = p->device->options.fusion == FUSION_ON ? 0 : SEPARATE;
    float best_ms = 1e30f;
    int best = first;
    if (fused->tuned)
        return DPB_OK;
    for (int which = first; which < (int)fused->n; which++) {
        float ms;
        fused->taken = which;
        DPB_TRY(time_steps(tuning, step, cuda_fused_taker(p, at), &ms));
        if (ms < best_ms) {
            best_ms = ms;
            best = which;
        }
    }
    fused->taken = best;
    fused->tuned = true;
    return remember(tuning, fused->key, best == SEPARATE ? SEPARATE : fused->plans[best].rank, 0);
}

static dpb_status tune_list(struct tuning *tuning, const struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        enum conv_call call;
        if (cuda_is_conv(&list->steps[i], &call))
            DPB_TRY(tune_step(tuning, &list->steps[i], call));
        if (cuda_is_fused(&list->steps[i]))
            DPB_TRY(tune_fused(tuning, i));
    }
    return DPB_OK;
}

dpb_status cuda_tune(struct program *p)
{
    struct tuning tuning = {.p = p};
    if (strcmp(p->device->options.tuning, "no") == 0)
        return DPB_OK;
    find_path(&p->device->options, tuning.path);
    if (tuning.path[0])
        tuning.known = read_file(tuning.path);
    dpb_status status = tune_list(&tuning, &p->forward);
    if (status == DPB_OK)
        status = tune_list(&tuning, &p->backward);
    if (status == DPB_OK)
        append_file(&tuning);
    free(tuning.known);
    free(tuning.found);
    return status;
}
