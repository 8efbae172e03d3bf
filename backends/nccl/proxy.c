/* Before 2.27, NCCL keeps the state of a non-blocking call in thread-local variables (group.cc) until the call has
 * completed.  Another call of that thread for another communicator corrupts both, and so does the thread's exit.  With
 * such versions each communicator has a proxy thread that makes its calls, and a group has one for calls inside an NCCL
 * group.  With newer versions the proxy is NULL and the calling thread makes the calls. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "ncclb.h"

struct ncclb_proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    CUcontext context;
    ncclResult_t (*fn)(void *argument); /* pending call, or NULL */
    void *argument;
    ncclResult_t result;
    bool ends;
};

static void *proxy_main(void *argument)
{
    struct ncclb_proxy *proxy = argument;
    driver.cuCtxPushCurrent(proxy->context);
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->ends) {
        if (proxy->fn != NULL) {
            proxy->result = proxy->fn(proxy->argument);
            proxy->fn = NULL;
            pthread_cond_broadcast(&proxy->changed);
        } else {
            pthread_cond_wait(&proxy->changed, &proxy->lock);
        }
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

bool ncclb_thread_new(pthread_t *thread, void *(*main)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

int ncclb_proxy_start(const struct ncclb_group *group, struct ncclb_proxy **out)
{
    if (ncclb_lib.version >= 22700 || *out != NULL) return TUTTI_OK;
    struct ncclb_proxy *proxy = calloc(1, sizeof *proxy);
    if (proxy == NULL)
        return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: out of memory for a proxy thread of group %s",
                                  group->info.name);
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->changed, NULL);
    proxy->context = group->device.context;
    if (!ncclb_thread_new(&proxy->thread, proxy_main, proxy)) {
        free(proxy);
        return group->host->error(TUTTI_ERR_SYSTEM, "nccl: cannot create a proxy thread");
    }
    *out = proxy;
    return TUTTI_OK;
}

ncclResult_t ncclb_proxy_call(struct ncclb_proxy *proxy, ncclResult_t (*fn)(void *argument), void *argument)
{
    if (proxy == NULL) return fn(argument);
    pthread_mutex_lock(&proxy->lock);
    proxy->argument = argument;
    proxy->fn = fn;
    pthread_cond_broadcast(&proxy->changed);
    while (proxy->fn != NULL) pthread_cond_wait(&proxy->changed, &proxy->lock);
    ncclResult_t result = proxy->result;
    pthread_mutex_unlock(&proxy->lock);
    return result;
}

void ncclb_proxy_stop(struct ncclb_proxy *proxy)
{
    if (proxy == NULL) return;
    pthread_mutex_lock(&proxy->lock);
    proxy->ends = true;
    pthread_cond_broadcast(&proxy->changed);
    pthread_mutex_unlock(&proxy->lock);
    pthread_join(proxy->thread, NULL);
    pthread_cond_destroy(&proxy->changed);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}
