/*
 * board.h - memory that the launcher and all ranks of a machine share: the status page of each
 * rank, the control block of the job, and each rank's journal (its measurements).
 *
 * The board outlives a rank that dies: the launcher reads the rank's last phase and its
 * measurements there. The board is an inherited memfd, so a crash leaves nothing behind.
 */
#ifndef DPB_CORE_WORLD_BOARD_H
#define DPB_CORE_WORLD_BOARD_H

#include "base/log.h"
#include "base/settings.h"
#include "dpbench/comm.h"
#include "dpbench/device.h"
#include "dpbench/host.h"

enum {
    DPB_BOARD_TEXT = DPB_LOG_TEXT,
    DPB_BOARD_WARNINGS = 16,
    DPB_BOARD_FACTS = 8,
    DPB_BOARD_CONTROL_BYTES = 64 * 1024
};

/* Written by its rank alone, without locks, but for members that the launcher writes, most before
 * any rank is there. Read by the launcher, and by other ranks for messages. */
struct dpb_status_page {
    uint32_t machine; /* the launcher's: see launch/machines.h */
    int32_t pid;
    char host[64];
    uint32_t role;    /* dpb_role */
    uint64_t step;    /* of the loop */
    uint64_t n_steps; /* planned, 0: open; rank 0's is shown as progress */
    char phase[32];   /* "forward", "wait_peer", ...; see dpb_world_note */
    uint64_t bucket;  /* UINT64_MAX: none */
    uint32_t peer;    /* UINT32_MAX: none */
    int64_t since_ns;
    uint32_t status;   /* dpb_status of the first error */
    int64_t failed_ns; /* when; 0: not failed */
    struct {           /* where: a rank may continue after it */
        char phase[32];
        uint64_t step, bucket;
    } failed;
    char error[DPB_BOARD_TEXT];
    uint64_t not_finite; /* arena element + 1 that an update here made infinite or NaN; 0: none */
    uint32_t n_warnings; /* may exceed DPB_BOARD_WARNINGS: the rest was dropped */
    struct {
        char code[32], text[256];
    } warnings[DPB_BOARD_WARNINGS];
    uint32_t n_facts;
    struct dpb_fact {
        char name[24], value[104];
    } facts[DPB_BOARD_FACTS];   /* the host's `report` */
    char gpu[DPB_GPU_ADDRESS];  /* on which it computes; "": on the host */
    struct dpb_sharing sharing; /* of its device */
    /* The launcher's, for ranks of other parts: the clock of rank 0's machine less the rank's, and
     * the error of that; error_ns = -1: not known. Zeros: the clock is the same. */
    struct {
        int64_t offset_ns, error_ns;
    } clock;
    uint32_t may_die; /* run.survive: the others train on if a signal ends this worker now */
    uint32_t lost;    /* the launcher's: a signal has ended it, and they train on */
};

/* A description of the job for people who watch it: the launcher writes it before any rank is
 * there. Only the launcher that makes the result has a label. */
struct dpb_board_about {
    char label[320];              /* "[3/24] comm.name=shm" */
    int64_t began_ns, command_ns; /* the job; the command that runs it */
    uint64_t step_samples; /* of a training's step, over all workers; 0: there is no training */
    bool emulated;         /* there is no loss */
    double dilation;       /* the records' times are divided by it; 0 is as 1 */
    double usual_s;        /* of the sweep's ended runs; NaN: none has ended, or no sweep */
    uint64_t n_left;       /* runs of the sweep behind this one */
    uint64_t record_bytes; /* of struct dpb_record in the job's version */
    uint16_t ends[2]; /* the first cores of the first and of the last worker; equal: not known */
    double core_to_core_ns; /* between these, before any rank was there; NaN: not known */
};

/* Checkpoints that a restart continues (run.restart). The launcher writes the first two members
 * before any rank is there, rank 0 the steps; so a step is never that of a part of a checkpoint. */
enum { DPB_KEPT = 2 }; /* while one is written, the other is whole */
struct dpb_board_kept {
    int32_t launcher, files[DPB_KEPT]; /* its process, and memfds of it; unused with files */
    uint64_t steps[DPB_KEPT];          /* done at the last two checkpoints; 0: none, or not whole */
};

/* A job that runs in turns (launch/turns.h): the launcher's words to its ranks. */
struct dpb_board_turns {
    int64_t parked_ns; /* for so long no rank ran, over the pauses that have ended */
    uint32_t end;      /* the job has had its turns: rank 0 proposes the stop */
    bool orders;       /* the job has turns; set before the ranks start */
};

struct dpb_board;

/* Words of the control memory that a rank has written, for the boards of other parts (party.h):
 * sent by dpb_store_post, applied in order. */
enum { DPB_POST_WORDS = 4 };
struct dpb_post {
    uint32_t n_words;
    uint32_t all; /* for every board, else for rank 0's alone */
    /* Once every board has them this word is written on rank 0's; UINT64_MAX: none. */
    uint64_t confirm_at, confirm_value;
    struct {
        uint64_t offset, value; /* in the control memory, a multiple of 8 */
    } words[DPB_POST_WORDS];
};

/* The launcher's. Sparse memory: a journal takes only the pages that are written. */
dpb_status dpb_board_create(uint32_t n_ranks, size_t journal_bytes, struct dpb_board **board);
int dpb_board_fd(const struct dpb_board *board); /* @borrowed */
/* A rank's, from the inherited descriptor, which it then owns. */
dpb_status dpb_board_open(int fd, struct dpb_board **board);
/* For another process, which may read everything and write nothing. When the job ends, the board
 * keeps its last content. DPB_USAGE: no board of this version; nothing is logged. */
dpb_status dpb_board_watch(int fd, struct dpb_board **board); /* takes over */
void dpb_board_destroy(struct dpb_board *board);              /* unmaps; accepts NULL */

uint32_t dpb_board_ranks(const struct dpb_board *board);
struct dpb_status_page *dpb_board_page(struct dpb_board *board, uint32_t rank);
struct dpb_board_about *dpb_board_about(struct dpb_board *board);
struct dpb_board_kept *dpb_board_kept(struct dpb_board *board);
struct dpb_board_turns *dpb_board_turns(struct dpb_board *board); /* by atomic loads and stores */
/* *bytes: its size; `bytes` may be NULL. */
void *dpb_board_journal(struct dpb_board *board, uint32_t rank, size_t *bytes);
/* The first written part of a rank's journal from `from` on: [*begin, *end); false: there is
 * none. */
bool dpb_board_written(const struct dpb_board *board, uint32_t rank, size_t from, size_t *begin,
                       size_t *end);
/* Zeroed memory for loop/control.h; core's own layout. */
void *dpb_board_control(struct dpb_board *board);
/* Applies a post from another part. False: the post is invalid. */
bool dpb_board_apply(struct dpb_board *board, const struct dpb_post *post);
bool dpb_board_write(struct dpb_board *board, uint64_t offset, uint64_t value);

/* Set by the launcher, before it informs any rank; see run.survive. */
void dpb_board_lose(struct dpb_board *board, uint32_t rank);
bool dpb_board_lost(struct dpb_board *board, uint32_t rank);

/* The job is ending: set by the launcher when a process died or at a second signal; every blocking
 * wait of every rank returns DPB_PEER soon after. */
void dpb_board_end_job(struct dpb_board *board);
bool dpb_board_job_ended(const struct dpb_board *board);
/* SIGINT or SIGTERM came (its number, 0: none): rank 0 proposes the stop at a step's start. */
void dpb_board_interrupt(struct dpb_board *board, int signal_number);
int dpb_board_interrupted(const struct dpb_board *board);

#endif
