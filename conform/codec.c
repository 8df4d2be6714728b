/*
 * codec.c - the conformance suite of codecs: see conform.h.
 *
 * A message may come from a foreign process. Each decode that is handed a wrong one runs in a
 * process of its own, with the message's last cache line at the end of readable memory: a codec
 * that reads on, or writes outside of `sum`, fails its trial instead of ending the suite.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "conform/conform.h"
#include "dpbench/random.h"

enum { GUARD = 64, CANARY = 0xa5, FOREIGN_MESSAGES = 20, RANK = 2, PATIENCE_S = 30 };
/* The result of a decode, as its process's exit code. */
enum { TAKEN = 10, REFUSED, REFUSED_WITHOUT_NAME, OUTSIDE };

struct subject {
    const struct dpb_plugin *plugin;
    const struct dpb_codec_ops *ops;
    const void *options;
    struct dpb_codec_part part;
    uint32_t n_rounds;
    bool moves;              /* has a velocity */
    uint64_t n_state, n_sum; /* elements of the state, and of the array that `decode` adds to */
    uint64_t bound, bytes;   /* of the message */
    float *gradients;
    float *before, *residual; /* the residual before and after the encoding */
    unsigned char *guarded;   /* `decoded`, with GUARD bytes on either side */
    float *decoded;
    unsigned char *message; /* `bound` bytes, and GUARD more */
    unsigned char *end;     /* of the readable memory */
    void *mapped;
    size_t mapped_bytes;
};

/* ---- memory -------------------------------------------------------------------------------- */

static void release(struct subject *s)
{
    free(s->gradients);
    free(s->before);
    free(s->residual);
    free(s->guarded);
    free(s->part.state);
    free(s->part.velocity);
    free(s->part.added);
    free(s->message);
    if (s->mapped)
        munmap(s->mapped, s->mapped_bytes);
}

/* Room for messages of up to 2 x `bound` bytes, before a page that cannot be read. */
static dpb_status map_message(struct subject *s)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    s->mapped_bytes = (2 * s->bound / page + 2) * page;
    void *mapped =
        mmap(NULL, s->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return dpb_fail(DPB_NO_MEMORY, "no memory for a message of %zu bytes", s->mapped_bytes);
    s->mapped = mapped;
    s->end = (unsigned char *)mapped + s->mapped_bytes - page;
    if (mprotect(s->end, page, PROT_NONE) != 0)
        return dpb_fail(DPB_FAILED, "the end of a message cannot be protected: %m");
    return DPB_OK;
}

static dpb_status allocate(struct subject *s)
{
    const size_t bytes = s->part.n * sizeof(float), most = s->bound > bytes ? s->bound : bytes;
    s->gradients = calloc(1, bytes);
    s->before = calloc(1, bytes);
    s->residual = calloc(1, bytes);
    unsigned char *guarded = s->guarded = calloc(1, most + 2 * GUARD);
    s->part.state = calloc(s->n_state + 1, sizeof(float));
    s->moves = s->ops->velocity && s->ops->velocity(s->options);
    s->part.velocity = s->moves ? calloc(1, bytes) : NULL;
    s->part.added = calloc(1, bytes);
    s->decoded = guarded ? (float *)(void *)(guarded + GUARD) : NULL;
    const size_t lines = (s->bound + GUARD) / DPB_CACHE_LINE + 1;
    s->message = aligned_alloc(DPB_CACHE_LINE, lines * DPB_CACHE_LINE);
    if (!s->gradients || !s->before || !s->residual || !guarded || !s->part.state || !s->message ||
        (s->moves && !s->part.velocity) || !s->part.added)
        return dpb_fail(DPB_NO_MEMORY, "no memory for %zu bytes of gradients", bytes);
    return map_message(s);
}

/* ---- one message --------------------------------------------------------------------------- */

/* Numbers of many magnitudes and both signs, some of them equal. */
static float number(uint32_t stream, uint64_t i)
{
    const struct dpb_random4 r = dpb_random(11, DPB_STREAM_EXCHANGE, stream, (uint32_t)i, 0, 0);
    if (r.v[3] % 4 == 0)
        return (float)((int)(r.v[0] % 5) - 2);
    return ldexpf((float)(int32_t)r.v[0], -31 - (int)(r.v[1] % 16));
}

static void fill(struct subject *s)
{
    for (uint64_t i = 0; i < s->part.n; i++) {
        s->gradients[i] = number(1, i);
        s->before[i] = i % 2 ? number(2, i) : 0.0F;
    }
}

static dpb_status encode_round(struct subject *s)
{
    memset(s->message, CANARY, s->bound + GUARD);
    s->bytes = s->ops->encode(s->options, &s->part, s->gradients, s->residual, s->message);
    if (s->bytes > s->bound)
        return dpb_fail(DPB_VERIFICATION, "a message of %llu bytes; `bound` says at most %llu",
                        (unsigned long long)s->bytes, (unsigned long long)s->bound);
    if (s->n_rounds > 1 && s->bytes != s->n_sum * sizeof(float))
        return dpb_fail(DPB_VERIFICATION, "a message of %llu bytes; `bytes` says %llu",
                        (unsigned long long)s->bytes, (unsigned long long)s->n_sum * sizeof(float));
    for (uint64_t i = s->bytes; i < s->bound + GUARD; i++)
        if (s->message[i] != CANARY)
            return dpb_fail(DPB_VERIFICATION, "byte %llu is written of a message of %llu",
                            (unsigned long long)i, (unsigned long long)s->bytes);
    return DPB_OK;
}

/* Adds to `addend` in every element of s->decoded. */
static dpb_status decode(struct subject *s, const void *message, uint64_t bytes, float addend)
{
    unsigned char *guarded = s->guarded;
    const size_t n_bytes = s->n_sum * sizeof(float);
    memset(guarded, CANARY, n_bytes + 2 * GUARD);
    for (uint64_t i = 0; i < s->n_sum; i++)
        s->decoded[i] = addend;
    dpb_status status = s->ops->decode(s->options, &s->part, message, bytes, s->decoded);
    for (size_t i = 0; i < GUARD; i++)
        if (guarded[i] != CANARY || guarded[GUARD + n_bytes + i] != CANARY)
            return dpb_fail(DPB_VERIFICATION, "decode writes outside of the %llu elements",
                            (unsigned long long)s->n_sum);
    return status;
}

/* Ends a round of the only worker; after the last round s->decoded has the gradients sent. */
static dpb_status finish(struct subject *s)
{
    DPB_TRY(decode(s, s->message, s->bytes, 0.0F));
    if (s->n_rounds == 1)
        return DPB_OK;
    float *gradients = malloc(s->part.n * sizeof *gradients);
    DPB_TRY(dpb_allocated(gradients));
    memcpy(gradients, s->gradients, s->part.n * sizeof *gradients);
    s->ops->finish(s->options, &s->part, s->decoded, gradients, s->residual);
    if (s->part.round + 1 == s->n_rounds)
        memcpy(s->decoded, gradients, s->part.n * sizeof *gradients);
    free(gradients);
    return DPB_OK;
}

/* Encodes in `round`, the rounds before it being over. */
static dpb_status encode_in(struct subject *s, uint32_t round)
{
    memcpy(s->residual, s->before, s->part.n * sizeof *s->residual);
    memset(s->part.state, 0, s->n_state * sizeof *s->part.state);
    memset(s->part.added, 0, s->part.n * sizeof *s->part.added);
    for (uint64_t i = 0; i < s->part.n && s->moves; i++)
        s->part.velocity[i] = number(3, i);
    for (s->part.round = 0;; s->part.round++) {
        s->n_sum =
            s->n_rounds == 1 ? s->part.n : s->ops->bytes(s->options, &s->part) / sizeof(float);
        DPB_TRY(encode_round(s));
        if (s->part.round == round)
            return DPB_OK;
        DPB_TRY(finish(s));
    }
}

/* ... in the last round, and ends it. */
static dpb_status pass(struct subject *s)
{
    DPB_TRY(encode_in(s, s->n_rounds - 1));
    return finish(s);
}

/* ---- trials -------------------------------------------------------------------------------- */

static double given_of(const struct subject *s, uint64_t i)
{
    return (double)s->gradients[i] + (double)s->part.added[i] + (double)s->before[i];
}

/* The sent and the kept part sum to the input plus the addition of a velocity; decode adds. */
static dpb_status check_books(struct subject *s)
{
    double largest = 0;
    DPB_TRY(pass(s));
    for (uint64_t i = 0; i < s->part.n; i++)
        largest = fmax(largest, fabs(given_of(s, i)));
    for (uint64_t i = 0; i < s->part.n; i++) {
        const double given = given_of(s, i);
        const double sent = (double)s->decoded[i], kept = (double)s->residual[i];
        if (!(fabs(sent + kept - given) <= largest * FLT_EPSILON))
            return dpb_fail(DPB_VERIFICATION,
                            "element %llu: gradient + residual was %.9g, of which %.9g is sent and "
                            "%.9g is kept; the largest of the part is %.9g",
                            (unsigned long long)i, given, sent, kept, largest);
    }
    return DPB_OK;
}

static dpb_status check_sum(struct subject *s, uint32_t round)
{
    DPB_TRY(encode_in(s, round));
    DPB_TRY(decode(s, s->message, s->bytes, 0.0F));
    float *sent = malloc((s->n_sum + 1) * sizeof *sent);
    DPB_TRY(dpb_allocated(sent));
    memcpy(sent, s->decoded, s->n_sum * sizeof *sent);
    dpb_status status = decode(s, s->message, s->bytes, 3.0F);
    for (uint64_t i = 0; status == DPB_OK && i < s->n_sum; i++) {
        const double sum = 3.0 + (double)sent[i];
        if (!(fabs((double)s->decoded[i] - sum) <= 2 * FLT_EPSILON * (3 + fabs((double)sent[i]))))
            status = dpb_fail(DPB_VERIFICATION, "element %llu: 3 and a message's %.9g became %.9g",
                              (unsigned long long)i, (double)sent[i], (double)s->decoded[i]);
    }
    free(sent);
    return status;
}

static dpb_status check_again(struct subject *s, uint32_t round)
{
    DPB_TRY(encode_in(s, round));
    const uint64_t bytes = s->bytes;
    unsigned char *first = malloc(bytes + s->part.n * sizeof(float));
    DPB_TRY(dpb_allocated(first));
    memcpy(first, s->message, bytes);
    memcpy(first + bytes, s->residual, s->part.n * sizeof(float));
    dpb_status status = encode_in(s, round);
    if (status == DPB_OK && (s->bytes != bytes || memcmp(first, s->message, bytes) != 0 ||
                             memcmp(first + bytes, s->residual, s->part.n * sizeof(float)) != 0))
        status = dpb_fail(DPB_VERIFICATION, "the same gradients, step and rank, and another "
                                            "message or residual");
    free(first);
    return status;
}

/* If an element is not finite, at least this element must be sent or kept as not finite. */
static dpb_status check_not_finite(struct subject *s)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    const uint64_t at = s->part.n / 2;
    const float gradient = s->gradients[at];
    dpb_status status = DPB_OK;
    for (size_t i = 0; status == DPB_OK && i < sizeof odd / sizeof odd[0]; i++) {
        s->gradients[at] = odd[i];
        status = pass(s);
        if (status == DPB_OK && isfinite(s->decoded[at]) && isfinite(s->residual[at]))
            status = dpb_fail(DPB_VERIFICATION, "element %llu is %g, and neither sent nor kept so",
                              (unsigned long long)at, (double)odd[i]);
    }
    s->gradients[at] = gradient;
    return status;
}

/* ---- messages of others -------------------------------------------------------------------- */

static int decode_foreign(struct subject *s, const unsigned char *message, uint64_t bytes)
{
    char rank[32];
    dpb_status status = decode(s, message, bytes, 0.0F);
    if (status == DPB_OK)
        return TAKEN;
    if (status == DPB_VERIFICATION)
        return OUTSIDE;
    snprintf(rank, sizeof rank, "rank %d", RANK);
    const char *why = dpb_first_error(NULL);
    return strstr(why, s->plugin->name) && strstr(why, rank) ? REFUSED : REFUSED_WITHOUT_NAME;
}

/* *outcome: one of the exit codes above. Fails where none of them may be. */
static dpb_status try_foreign(struct subject *s, const unsigned char *message, uint64_t bytes,
                              const char *what, int *outcome)
{
    int state;
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        return dpb_fail(DPB_FAILED, "no process for a decode: %m");
    if (child == 0) {
        alarm(PATIENCE_S); /* a loop by a count in the message may not end */
        _exit(decode_foreign(s, message, bytes));
    }
    if (waitpid(child, &state, 0) != child)
        return dpb_fail(DPB_FAILED, "the process of a decode is gone: %m");
    *outcome = WIFEXITED(state) ? WEXITSTATUS(state) : 0;
    if (WIFSIGNALED(state))
        return dpb_fail(DPB_VERIFICATION, "%s: decode ends its process by signal %d (%s)", what,
                        WTERMSIG(state), strsignal(WTERMSIG(state)));
    if (*outcome < TAKEN || *outcome > OUTSIDE) /* a sanitizer's, or the codec's own exit */
        return dpb_fail(DPB_VERIFICATION, "%s: decode ends its process with exit code %d", what,
                        *outcome);
    if (*outcome == OUTSIDE)
        return dpb_fail(DPB_VERIFICATION, "%s: decode writes outside of the %llu elements", what,
                        (unsigned long long)s->part.n);
    if (*outcome == REFUSED_WITHOUT_NAME)
        return dpb_fail(DPB_VERIFICATION,
                        "%s: refused, but not with the codec's name and 'rank %d'", what, RANK);
    return DPB_OK;
}

static unsigned char *place_message(const struct subject *s, uint64_t bytes)
{
    return s->end - (bytes + DPB_CACHE_LINE - 1) / DPB_CACHE_LINE * DPB_CACHE_LINE;
}

/* Messages may vary in length, up to the bound: within it any outcome, beyond it a refusal. */
static dpb_status check_lengths(struct subject *s, uint32_t round)
{
    DPB_TRY(encode_in(s, round));
    const uint64_t lengths[] = {0,         s->bytes / 2, s->bytes - 1, s->bytes + 1, s->bound + 1,
                                UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char what[96];
        int outcome;
        const uint64_t there = lengths[i] <= s->bound + 1 ? lengths[i] : s->bytes;
        unsigned char *message = place_message(s, there);
        memset(message, 0, there);
        memcpy(message, s->message, there < s->bytes ? there : s->bytes);
        snprintf(what, sizeof what, "%llu bytes in place of %llu", (unsigned long long)lengths[i],
                 (unsigned long long)s->bytes);
        DPB_TRY(try_foreign(s, message, lengths[i], what, &outcome));
        if (outcome == TAKEN && lengths[i] > s->bound)
            return dpb_fail(DPB_VERIFICATION, "%s: decode takes them", what);
    }
    return DPB_OK;
}

/* Bytes at random, in whole or in a part of a right message: any outcome within bounds. */
static dpb_status check_foreign(struct subject *s, uint32_t round)
{
    DPB_TRY(encode_in(s, round));
    unsigned char *message = place_message(s, s->bytes);
    for (uint32_t m = 0; m < FOREIGN_MESSAGES; m++) {
        char what[96];
        int outcome;
        memcpy(message, s->message, s->bytes);
        for (uint64_t i = 0; i < s->bytes; i++) {
            const struct dpb_random4 r =
                dpb_random(13, DPB_STREAM_EXCHANGE, m, (uint32_t)i, (uint32_t)s->part.n, 0);
            if (r.v[0] % (m + 1) == 0)
                message[i] = (unsigned char)r.v[1];
        }
        snprintf(what, sizeof what, "message %u of %llu bytes at random", m,
                 (unsigned long long)s->bytes);
        DPB_TRY(try_foreign(s, message, s->bytes, what, &outcome));
    }
    return DPB_OK;
}

/* ---- the suite ----------------------------------------------------------------------------- */

static dpb_status in_all_rounds(struct subject *s,
                                dpb_status (*check)(struct subject *s, uint32_t round))
{
    for (uint32_t round = 0; round < s->n_rounds; round++)
        DPB_TRY(check(s, round));
    return DPB_OK;
}

/* The part cuts the first and the last tensor; two have gaps behind them. */
static const struct dpb_tensor tensors[] = {
    {.n_dims = 2, .dims = {60, 37}, .n_elements = 2220, .offset = 4000},
    {.n_dims = 1, .dims = {61}, .n_elements = 61, .offset = 6220},
    {.n_dims = 4, .dims = {32, 16, 3, 3}, .n_elements = 4608, .offset = 6304},
    {.n_dims = 2, .dims = {200, 100}, .n_elements = 20000, .offset = 10944}};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

static void take_part(struct subject *s, uint64_t n)
{
    s->part = (struct dpb_codec_part){.first = 4096,
                                      .n = n,
                                      .seed = 5,
                                      .step = 9,
                                      .rank = RANK,
                                      .n_workers = 1,
                                      .tensors = tensors};
    while (s->part.n_tensors < N_TENSORS && tensors[s->part.n_tensors].offset < s->part.first + n)
        s->part.n_tensors++;
    s->bound = s->ops->bound(s->options, n);
    s->n_rounds = s->ops->finish ? DPB_CODEC_ROUNDS : 1;
    s->n_state = s->ops->finish ? s->ops->state(s->options, &s->part) : 0;
}

static void try_part(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                     const void *options, uint64_t n)
{
    struct subject s = {.plugin = plugin, .ops = plugin->ops, .options = options};
    take_part(&s, n);
    dpb_conform_heading(conform, "%llu element%s: at most %llu bytes for %llu",
                        (unsigned long long)n, n == 1 ? "" : "s", (unsigned long long)s.bound,
                        4 * (unsigned long long)n);
    dpb_status status = allocate(&s);
    if (status != DPB_OK) {
        dpb_conform_trial(conform, status, "memory");
    } else {
        dpb_conform_trial(conform, check_books(&s), "zeros");
        fill(&s);
        dpb_conform_trial(conform, check_books(&s), "books");
        dpb_conform_trial(conform, in_all_rounds(&s, check_sum), "sum");
        dpb_conform_trial(conform, in_all_rounds(&s, check_again), "determinism");
        dpb_conform_trial(conform, check_not_finite(&s), "not finite");
        dpb_conform_trial(conform, in_all_rounds(&s, check_lengths), "lengths");
        dpb_conform_trial(conform, in_all_rounds(&s, check_foreign), "foreign messages");
    }
    dpb_conform_end(conform);
    release(&s);
}

void dpb_conform_codec(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                       const void *options)
{
    static const uint64_t sizes[] = {1, 97, 1024, 1025, 20011};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        try_part(conform, plugin, options, sizes[i]);
    puts("books: a message and the residual after it make up gradient + residual, within "
         "one rounding of the part's largest\n"
         "sum: decode adds; determinism: the same message again; not finite: is not lost\n"
         "lengths, foreign messages: refused with the codec's name and the sender's rank, or "
         "decoded "
         "within bounds\n"
         "not shown: speed, that a training converges (docs/codecs.md), the carriers");
}
