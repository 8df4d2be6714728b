/* answer.c - see answer.h. */
#include "world/answer.h"

#include <string.h>

#include "base/log.h"
#include "base/threads.h"
#include "world/store.h"

static const char farewell = 0;

/* However long the others train, it waits to be asked. */
static void *answer_always(void *answerer_)
{
    const struct dpb_answerer *answerer = answerer_;
    char question[DPB_QUESTION_BYTES];
    size_t bytes = sizeof question;
    dpb_thread_enter();
    while (dpb_store_take(answerer->key, question, &bytes, DPB_FOREVER) == DPB_OK &&
           bytes != sizeof farewell && answerer->answer(answerer->owner, question, bytes) == DPB_OK)
        bytes = sizeof question;
    dpb_thread_leave();
    return NULL;
}

dpb_status dpb_answerer_start(struct dpb_answerer *answerer, const char *what)
{
    const int error = pthread_create(&answerer->thread, NULL, answer_always, answerer);
    if (error != 0)
        return dpb_fail(DPB_NO_MEMORY, "cannot start a thread for %s: %s", what, strerror(error));
    answerer->runs = true;
    return DPB_OK;
}

void dpb_answerer_stop(struct dpb_answerer *answerer)
{
    if (!answerer->runs)
        return;
    /* The end of the job ends the thread, too. */
    (void)dpb_store_give(answerer->key, &farewell, sizeof farewell, 0);
    pthread_join(answerer->thread, NULL);
    answerer->runs = false;
}
