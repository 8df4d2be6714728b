/*
 * proving.h - a proof under way: its steps with known gradients, the blocks of elements that it
 * looks at, and the bounds of roundings.
 */
#ifndef DPB_CORE_PROOF_PROVING_H
#define DPB_CORE_PROOF_PROVING_H

#include "exchange/exchange.h"
#include "measure/journal.h"

enum { DPB_PROOF_BLOCK = 1024, DPB_PROOF_SAMPLED_BLOCKS = 1024, DPB_PROOF_BOOK_STEPS = 8 };

struct dpb_proving;
struct dpb_proof_expected;

/* Gradients of `rank` in the n-th step of a proof, for elements [begin, begin + count). */
typedef void (*dpb_proof_generator)(const struct dpb_proving *proof, uint32_t rank, uint32_t step,
                                    uint64_t begin, uint64_t count, double *gradients);

struct dpb_proving {
    struct dpb_exchange *exchange;
    struct dpb_journal *journal;
    const char *name;
    dpb_proof_generator generate;
    bool integers;     /* the pattern's gradients: sums over the workers are exact */
    bool exact, fresh; /* from zero weights */
    bool finite;       /* all checked numbers are; run.nan = continue accepts others */
    uint64_t key;      /* the job's secret for this proof: of its gradients and its blocks */
    double rate, scale;
    uint32_t n_steps;        /* with gradients */
    uint32_t n_zero_steps;   /* behind them */
    uint64_t first_exchange; /* step number of the first */
    uint64_t phase, stride;  /* blocks looked at: phase, phase + stride, ... */
    double *before;          /* of those blocks, one behind the other; NULL: zeros */
    /* Called between steps, after n_taken of them; NULL: nothing is checked before the last. */
    dpb_status (*look)(struct dpb_proving *proof, uint32_t n_taken);
    dpb_status (*interrupt)(const struct dpb_proving *proof); /* behind the first step; or NULL */
    struct dpb_proof_expected *together; /* periodic: the first block, as if workers met now */
    double *apart;                       /* ... and as if none did in this step */
    uint32_t met_at;                     /* steps taken when workers last met, or may have met */
    uint32_t told_at;                    /* ... when others' gradients last showed a meeting */
};

/* Gradients as the arena holds them. */
void dpb_proof_generate(const struct dpb_proving *proof, uint32_t rank, uint32_t step,
                        uint64_t begin, uint64_t count, double *gradients);
/* Elements of the block that begins at `begin`. */
uint64_t dpb_proof_block_length(const struct dpb_exchange *exchange, uint64_t begin);
/* Blocks that the proof looks at. */
uint64_t dpb_proof_count_blocks(const struct dpb_proving *proof);
double dpb_proof_roundoff(dpb_dtype type);
/* Of gradients between the workers and the weights, as a share of their magnitudes. `integers`:
 * sums over the workers are exact. */
double dpb_proof_error(const struct dpb_exchange *exchange, bool integers);

static inline double dpb_proof_number_at(dpb_dtype type, const void *array, uint64_t i)
{
    return type == DPB_FP64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

/* Makes the weights at the start of a proof: zeros; or the training's, after steps of zero
 * gradients have brought all gradients handed over into the weights. */
dpb_status dpb_proof_make_start(const struct dpb_proving *proof);
dpb_status dpb_proof_take_steps(struct dpb_proving *proof);

/* Between steps. Collective; DPB_FAILED if the strategy publishes nothing. */
dpb_status dpb_proof_publish(const struct dpb_proving *proof, const void **weights);

#endif
