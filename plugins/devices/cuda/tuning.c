/*
 * tuning.c - which algorithm of cuDNN is the fastest for a convolution: tried once, and kept in a
 * file.
 *
 * A line of the file is
 *
 *     GPU <tab> cuDNN's version <tab> call, type and shapes <tab> algorithm <tab> kind of
 * arithmetic
 *
 * Lines are appended by one write each time a program was tuned, so several processes may share the
 * file; of equal keys the last counts. What the file names and cuDNN does not offer is tried anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"

enum { KEY_BYTES = 256, PATH_BYTES = 4096, LINE_BYTES = 512, TRIES = 3, FILE_MOST = 16 << 20 };

struct tuning {
    struct program *p;
    cudaEvent_t begin, end;
    char path[PATH_BYTES]; /* "": none */
    char *known;           /* the file's content */
    char *found;           /* lines to append */
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
static bool look_up(const struct tuning *tuning, const char *key, int *algorithm, int *math)
{
    bool found = false;
    size_t n = strlen(key);
    for (const char *line = tuning->known; line && *line;) {
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

static dpb_status remember(struct tuning *tuning, const char *key, const struct conv_choice *choice)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line, "%s\t%d\t%d\n", key, choice->algorithm, (int)choice->math);
    if (tuning->found_bytes + (size_t)n > tuning->found_capacity) {
        size_t capacity = 2 * tuning->found_capacity + LINE_BYTES;
        char *more = realloc(tuning->found, capacity);
        if (!more)
            return cuda_no_memory();
        tuning->found = more;
        tuning->found_capacity = capacity;
    }
    memcpy(tuning->found + tuning->found_bytes, line, (size_t)n);
    tuning->found_bytes += (size_t)n;
    return DPB_OK;
}

static void make_key(const struct program *p, const struct dpb_node *node, enum conv_call call,
                     char key[KEY_BYTES])
{
    static const char *const calls[CONV_CALLS] = {"forward", "data", "weights"};
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cuda_input(p, node, 0)->shape;
    snprintf(key, KEY_BYTES,
             "%s\t%zu\t%s %s n%u c%u h%u w%u k%u %ux%u stride %ux%u pad %u,%u,%u,%u",
             p->device->name, cudnnGetVersion(), calls[call], dpb_precision_name(p->args.precision),
             p->args.batch, in.c, in.h, in.w, node->shape.c, w->kernel_h, w->kernel_w, w->stride_h,
             w->stride_w, w->pad_top, w->pad_bottom, w->pad_left, w->pad_right);
}

/* ---- trying -------------------------------------------------------------------------------- */

/* The fastest of a few runs of the step as it stands. */
static dpb_status time_step(const struct tuning *tuning, const struct step *step, float *best_ms)
{
    const struct program *p = tuning->p;
    cudaStream_t stream = p->device->stream;
    *best_ms = 1e30f;
    DPB_TRY(step->run(p, step));
    for (int i = 0; i < TRIES; i++) {
        float ms = 0.0f;
        DPB_TRY(
            cuda_check(p, step->node, "cudaEventRecord", cudaEventRecord(tuning->begin, stream)));
        DPB_TRY(step->run(p, step));
        DPB_TRY(cuda_check(p, step->node, "cudaEventRecord", cudaEventRecord(tuning->end, stream)));
        DPB_TRY(cuda_check(p, step->node, step->what, cudaEventSynchronize(tuning->end)));
        DPB_TRY(cuda_check(p, step->node, "cudaEventElapsedTime",
                           cudaEventElapsedTime(&ms, tuning->begin, tuning->end)));
        *best_ms = ms < *best_ms ? ms : *best_ms;
    }
    return DPB_OK;
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
        DPB_TRY(time_step(tuning, step, &ms));
        put_first(conv, call, i);
        if (ms < best_ms) {
            best_ms = ms;
            best = i;
        }
    }
    put_first(conv, call, best);
    return DPB_OK;
}

static bool take_known(const struct tuning *tuning, const char *key, struct conv *conv,
                       enum conv_call call)
{
    int algorithm, math;
    if (!look_up(tuning, key, &algorithm, &math))
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
    struct conv *conv = cuda_plan(tuning->p, step->node)->conv;
    char key[KEY_BYTES];
    make_key(tuning->p, step->node, call, key);
    if (conv->call[call].n < 2 || take_known(tuning, key, conv, call))
        return DPB_OK;
    DPB_TRY(try_choices(tuning, step, conv, call));
    return remember(tuning, key, &conv->call[call].choices[0]);
}

static dpb_status tune_list(struct tuning *tuning, const struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        enum conv_call call;
        if (cuda_is_conv(&list->steps[i], &call))
            DPB_TRY(tune_step(tuning, &list->steps[i], call));
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
    dpb_status status = cuda_check(p, NULL, "cudaEventCreate", cudaEventCreate(&tuning.begin));
    if (status == DPB_OK)
        status = cuda_check(p, NULL, "cudaEventCreate", cudaEventCreate(&tuning.end));
    if (status == DPB_OK)
        status = tune_list(&tuning, &p->forward);
    if (status == DPB_OK)
        status = tune_list(&tuning, &p->backward);
    if (status == DPB_OK)
        append_file(&tuning);
    if (tuning.begin)
        cudaEventDestroy(tuning.begin);
    if (tuning.end)
        cudaEventDestroy(tuning.end);
    free(tuning.known);
    free(tuning.found);
    return status;
}
