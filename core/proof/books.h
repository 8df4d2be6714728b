/*
 * books.h - the proof by books: named arrays against the gradients that each worker says were
 * applied (dpbench/contract.h).
 */
#ifndef DPB_CORE_PROOF_BOOKS_H
#define DPB_CORE_PROOF_BOOKS_H

#include "proof/proving.h"

/* The whole proof. Collective. */
dpb_status dpb_books_prove(struct dpb_proving *proof);

#endif
