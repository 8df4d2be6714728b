/*
 * rates.h - the rates of runs and of a sweep's rows as study/document/comparison.h compares them,
 * and why a rate allows no conclusion. Read from documents alone.
 */
#ifndef DPB_STUDY_DOCUMENT_RATES_H
#define DPB_STUDY_DOCUMENT_RATES_H

#include <jansson.h>
#include <stdbool.h>

#include "study/document/comparison.h"

/* The mean logarithm of the repeats; for one repeat, or a run (`row` NULL), of its steps. */
void dpb_rates_estimate(const json_t *document, const json_t *row, struct dpb_estimate *estimate);
/* Two rows of one sweep, or of two that ran together, B against A: paired by block of turns, or by
 * repeat, where both have at least two in common. looks: of the repeats, or NULL. */
void dpb_rates_compare(const json_t *document_a, const json_t *a, const json_t *document_b,
                       const json_t *b, const struct dpb_looks *looks, double margin,
                       struct dpb_comparison *comparison);

/* Why a rate allows no conclusion. `of`: a run's result, or a row of a sweep. Reason i of
 * DPB_DOUBTS, as in "shm was disturbed"; NULL: the reason does not hold. The last two hold for
 * rows alone. */
enum {
    DPB_DOUBT_DISTURBED = 2,
    DPB_DOUBT_NOT_STEADY = 7,
    DPB_DOUBT_LEFT,
    DPB_DOUBT_WRONG,
    DPB_DOUBT_ONCE,
    DPB_DOUBT_UNDISTURBED_ONCE,
    DPB_DOUBTS
};
const char *dpb_rates_doubt(const json_t *of, size_t i);
/* Those of the first n that hold: "disturbed, timed only once"; "": none. */
void dpb_rates_doubts(const json_t *of, size_t n, char *text, size_t capacity);

/* Why two rows, or two runs, allow no conclusion, although each might; NULL: there is no reason. */
const char *dpb_rates_apart(const json_t *a, const json_t *b);

/* "2026-11-29T12:00:00Z" as seconds since 1970; NaN: it is no moment. */
double dpb_rates_moment(const char *text);
/* The seconds that a repeat of the sweep takes, disturbed runs included, by the moments at which
 * its runs started. NaN: not known. */
double dpb_rates_repeat_s(const json_t *document);
/* The seconds of a block of turns, of all cells together; NaN: there is none. */
double dpb_rates_block_s(const json_t *document);

/* "0.990 [0.970..1.010]"; "-" where nothing was measured. */
void dpb_rates_ratio(const struct dpb_comparison *comparison, char *text, size_t capacity);

#endif
