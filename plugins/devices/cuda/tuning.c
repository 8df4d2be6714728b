/*
 * tuning.c - which algorithm is the fastest for a convolution, of cuDNN's, and for a product of
 * matrices, of cuBLASLt's: tried once, and kept in a file.
 *
 * A line of the file is
 *
 *     GPU <tab> library's version <tab> call, type, shapes <tab> algorithm <tab> kind of arithmetic
 *
 * and of a product the rank among what cuBLASLt offers, and 0; of a convolution with sums
 * (conv_graph.c) the rank of its plan, or -1: alone is faster, and 0. Lines are appended by one
 * write each time a program was tuned, so several processes may share the file; of equal keys the
 * last counts. What the file names and the library does not offer is tried anew.
 *
 * Processes that share a GPU take turns: before its first trial one locks a byte of the file, whose
 * number is made of the GPU's address, and reads again what the others have found meanwhile.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "products.h"
#include "streams.h"

enum { PATH_BYTES = 4096, LINE_BYTES = 512, TRIES = 3, FILE_MOST = 16 << 20 };

struct tuning {
    struct program *p;
    char path[PATH_BYTES]; /* "": none */
    char *known;           /* the file's content */
    char *found;           /* lines to append; NULL: none yet */
    size_t found_bytes, found_capacity;
    int lock;    /* the file, of which a byte is locked; -1: not yet, or it cannot be opened */
    bool trying; /* it has been asked for */
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

/* Far behind what the file holds. */
static off_t byte_of(const struct device *device)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = device->pci; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (off_t)(((uint64_t)1 << 61) + (hash >> 4));
}

/* Before the first trial: true where others may have written since the file was read. Without a
 * file that can be written, which append_file says, nobody is waited for. */
static bool first_trial(struct tuning *tuning)
{
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(tuning->p->device), .l_len = 1};
    if (tuning->trying || !tuning->path[0])
        return false;
    tuning->trying = true;
    tuning->lock = open(tuning->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (tuning->lock < 0)
        return false;
    int failed;
    do
        failed = fcntl(tuning->lock, F_OFD_SETLKW, &byte);
    while (failed && errno == EINTR);
    if (failed)
        cuda_host->log(
            DPB_LOG_INFO,
            "device cuda: %s cannot be locked (%s): workers that share a GPU may disturb "
            "each other's trials",
            tuning->path, strerror(errno));
    free(tuning->known);
    tuning->known = read_file(tuning->path);
    return true;
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
    if (!cuda_tunes(options))
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
    char groups[20] = "";
    if (node->groups > 1)
        snprintf(groups, sizeof groups, " groups %u", node->groups);
    snprintf(key, TUNING_KEY_BYTES,
             "%s\t%zu\t%s %s n%u c%u h%u w%u k%u %ux%u stride %ux%u pad %u,%u,%u,%u%s%s",
             p->device->name, cudnnGetVersion(), call, dpb_precision_name(p->args.precision),
             p->args.batch, in.c, in.h, in.w, node->shape.c, w->kernel_h, w->kernel_w, w->stride_h,
             w->stride_w, w->pad_top, w->pad_bottom, w->pad_left, w->pad_right, groups,
             p->device->options.layout == LAYOUT_NCHW ? " NCHW" : "");
}

/* ---- trying -------------------------------------------------------------------------------- */

/* A step as it stands, and what comes behind it; NULL: nothing. */
struct trial {
    const struct program *p;
    const struct step *step;
    struct step *const *next; /* FUSED_TAKERS, of which some may be NULL */
};

static dpb_status run_trial(const void *trial_)
{
    const struct trial *trial = trial_;
    DPB_TRY(trial->step->run(trial->p, trial->step));
    for (int i = 0; trial->next && i < FUSED_TAKERS && trial->next[i]; i++)
        DPB_TRY(trial->next[i]->run(trial->p, trial->next[i]));
    return DPB_OK;
}

/* *ran: false where the candidate failed and the GPU goes on. Of an error that stays with the GPU's
 * context every later call fails, too. */
static dpb_status time_steps(const struct tuning *tuning, const struct step *step,
                             struct step *const *next, bool *ran, float *best_ms)
{
    const struct trial trial = {tuning->p, step, next};
    struct program *p = tuning->p;
    p->on_trial = true;
    *ran = cuda_time_best(p, step->node, step->what, run_trial, &trial, TRIES, best_ms) == DPB_OK;
    p->on_trial = false;
    if (*ran)
        return DPB_OK;
    cudaGetLastError();
    return cuda_check(p, step->node, step->what, cudaStreamSynchronize(p->device->stream));
}

/* What may be taken for a step: numbers [first, end), and how the file writes them. */
struct candidates {
    const struct step *step;
    struct step *const *next; /* timed with it, as in struct trial; NULL: nothing is */
    int *taken;
    int first, end;
    struct written {
        int algorithm, math;
    } written[1 + CONV_CHOICES];
};
static_assert((int)GEMM_CHOICES <= CONV_CHOICES && (int)FUSED_CHOICES <= CONV_CHOICES, "room");

/* Of an earlier step of the same shape here, or else of the file. */
static bool take_known(const struct tuning *tuning, const char *key, const struct candidates *from)
{
    int algorithm, math;
    if (!look_up(tuning->found, key, &algorithm, &math) &&
        !look_up(tuning->known, key, &algorithm, &math))
        return false;
    for (int i = from->first; i < from->end; i++) {
        const struct written *written = &from->written[i - from->first];
        if (written->algorithm == algorithm && written->math == math) {
            *from->taken = i;
            return true;
        }
    }
    return false;
}

static dpb_status take_fastest(struct tuning *tuning, const char *key,
                               const struct candidates *from)
{
    float best_ms = 1e30f;
    int best = from->end;
    if (take_known(tuning, key, from) || (first_trial(tuning) && take_known(tuning, key, from)))
        return DPB_OK;
    for (int i = from->first; i < from->end; i++) {
        float ms;
        bool ran;
        *from->taken = i;
        DPB_TRY(time_steps(tuning, from->step, from->next, &ran, &ms));
        if (ran && ms < best_ms) {
            best_ms = ms;
            best = i;
        }
    }
    if (best == from->end)
        return cuda_host->fail(DPB_FAILED,
                               "device cuda: none of %d algorithms for the %s of '%s' runs; the "
                               "warnings say why; device.tuning = no takes the library's choice",
                               from->end - from->first, from->step->what, from->step->node->name);
    *from->taken = best;
    const struct written *written = &from->written[best - from->first];
    return remember(tuning, key, written->algorithm, written->math);
}

static dpb_status tune_conv(struct tuning *tuning, const struct step *step, enum conv_call call)
{
    static const char *const calls[CONV_CALLS] = {"forward", "data", "weights"};
    struct conv *conv = cuda_plan(tuning->p, step->node)->conv;
    struct candidates from = {
        .step = step, .taken = &conv->call[call].taken, .end = (int)conv->call[call].n};
    char key[TUNING_KEY_BYTES];
    cuda_tuning_key(tuning->p, step->node, calls[call], key);
    for (int i = 0; i < from.end; i++) {
        const struct conv_choice *choice = &conv->call[call].choices[i];
        from.written[i] = (struct written){choice->algorithm, (int)choice->math};
    }
    return from.end < 2 ? DPB_OK : take_fastest(tuning, key, &from);
}

static dpb_status tune_gemm(struct tuning *tuning, const struct step *step, struct gemm *gemm)
{
    struct candidates from = {.step = step, .taken = &gemm->taken, .end = (int)gemm->n};
    for (int i = 0; i < from.end; i++)
        from.written[i] = (struct written){gemm->choices[i].rank, 0};
    return from.end < 2 ? DPB_OK : take_fastest(tuning, gemm->key, &from);
}

/* The plans of a convolution's call with sums and, unless device.fusion = on, the call by its
 * fastest algorithm: each with the steps that take what it leaves. */
static dpb_status tune_fused(struct tuning *tuning, const struct step *step, enum fused_call call,
                             size_t at)
{
    const struct program *p = tuning->p;
    struct fused *fused = cuda_plan(p, step->node)->fused[call];
    const int first = p->device->options.fusion == FUSION_ON ? 0 : SEPARATE;
    struct step *takers[FUSED_TAKERS];
    struct candidates from = {
        .step = step, .next = takers, .taken = &fused->taken, .first = first, .end = (int)fused->n};
    if (call == FUSED_DATA && fused->taken == SEPARATE) /* forward has a step of its own for it */
        DPB_TRY(tune_conv(tuning, step, CONV_DATA));
    if (fused->tuned)
        return DPB_OK;
    cuda_fused_takers(p, call, at, takers);
    for (int which = first; which < from.end; which++)
        from.written[which - first] =
            (struct written){which == SEPARATE ? SEPARATE : fused->plans[which].rank, 0};
    DPB_TRY(take_fastest(tuning, fused->key, &from));
    fused->tuned = true;
    return DPB_OK;
}

static dpb_status tune_list(struct tuning *tuning, const struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        struct gemm *gemm = cuda_gemm_of(tuning->p, step);
        enum fused_call fused;
        enum conv_call call;
        if (cuda_is_conv(step, &call))
            DPB_TRY(tune_conv(tuning, step, call));
        if (cuda_is_fused(step, &fused))
            DPB_TRY(tune_fused(tuning, step, fused, i));
        if (gemm)
            DPB_TRY(tune_gemm(tuning, step, gemm));
    }
    return DPB_OK;
}

dpb_status cuda_tune(struct program *p)
{
    struct tuning tuning = {.p = p, .lock = -1};
    if (!cuda_tunes(&p->device->options))
        return DPB_OK;
    find_path(&p->device->options, tuning.path);
    if (tuning.path[0])
        tuning.known = read_file(tuning.path);
    dpb_status status = tune_list(&tuning, &p->forward);
    if (status == DPB_OK)
        status = tune_list(&tuning, &p->backward);
    if (status == DPB_OK)
        append_file(&tuning);
    if (tuning.lock >= 0)
        close(tuning.lock);
    free(tuning.known);
    free(tuning.found);
    return status;
}
