#include "tool/tools.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/reduce_clock.h"
#include "plugin/file_check.h"

static const tutti_tool *tools[TUTTI_TOOLS_MOST];
static atomic_int n_tools; /* written under the lock, after the entry */
static pthread_mutex_t tools_lock = PTHREAD_MUTEX_INITIALIZER;

int tools_count(void)
{
    /* acquire pairs with add_tool's release: the entries below it are set */
    return atomic_load_explicit(&n_tools, memory_order_acquire);
}

const tutti_tool *tools_get(int i)
{
    return tools[i];
}

static int check_tool(const tutti_tool *tool)
{
    if (tool == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "register_tool: tool is NULL; pass a table");
    if (tool->abi != TUTTI_TOOL_ABI)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "register_tool: the tool has ABI %u and this library %d; rebuild it", tool->abi,
                         TUTTI_TOOL_ABI);
    if (tool->size < offsetof(tutti_tool, group_made) || tool->name == NULL || tool->name[0] == '\0')
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "register_tool: the table of %u bytes has no name; begin it with TUTTI_TOOL_HEADER and .name",
                         tool->size);
    return TUTTI_OK;
}

/* Adds a checked tool, unless it is there.  Lock held. */
static int add_tool(const tutti_tool *tool)
{
    int n = atomic_load_explicit(&n_tools, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        if (tools[i] == tool) return TUTTI_OK;
    if (n == TUTTI_TOOLS_MOST)
        return error_set(TUTTI_ERR_NO_MEMORY,
                         "register_tool: %d tools are registered, which is the limit; %s is refused", n, tool->name);
    tools[n] = tool;
    if (tool->times_reductions) reduce_clock_start();
    /* release: see tools_count */
    atomic_store_explicit(&n_tools, n + 1, memory_order_release);
    log_write(LOG_INFO, LOG_PLUGIN, "tool %s is registered", tool->name);
    return TUTTI_OK;
}

/* Another thread of the parent may have held the lock.  An entry counts once it is complete. */
static void reset_in_child(void)
{
    pthread_mutex_init(&tools_lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, reset_in_child);
}

int tools_register(const tutti_tool *tool)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int status = check_tool(tool);
    if (status != TUTTI_OK) return status;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&tools_lock);
    status = add_tool(tool);
    pthread_mutex_unlock(&tools_lock);
    return status;
}

static int load_file(const char *path)
{
    if (path[0] != '/') return error_set(TUTTI_ERR_INVALID_ARGUMENT, "\"%s\" is not an absolute path; give one", path);
    int status = file_check(path);
    if (status != TUTTI_OK) return status;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: the table stays in use */
    if (library == NULL) {
        const char *why = dlerror();
        return error_set(TUTTI_ERR_BACKEND, "%s cannot be loaded: %s", path, why != NULL ? why : "no reason given");
    }
    const tutti_tool *tool = dlsym(library, TUTTI_TOOL_SYMBOL);
    if (tool == NULL)
        return error_set(TUTTI_ERR_BACKEND, "%s has no symbol %s; export the tool's table under this name", path,
                         TUTTI_TOOL_SYMBOL);
    return tools_register(tool);
}

static void load_list(const char *list)
{
    char path[PATH_MAX];
    while (*list != '\0') {
        size_t length = strcspn(list, ":");
        snprintf(path, sizeof path, "%.*s", (int)length, list);
        if (length > 0 && load_file(path) != TUTTI_OK)
            log_write(LOG_WARN, LOG_PLUGIN, "TUTTI_TOOL: a tool is skipped: %s", error_text());
        list += length + (list[length] == ':');
    }
}

static void load_all(void)
{
    const char *list = env_string("TUTTI_TOOL", NULL);
    const tutti_tool *preloaded = dlsym(RTLD_DEFAULT, TUTTI_TOOL_SYMBOL);
    if (list != NULL) load_list(list);
    if (preloaded != NULL && tools_register(preloaded) != TUTTI_OK)
        log_write(LOG_WARN, LOG_PLUGIN, "the preloaded tool is skipped: %s", error_text());
}

void tools_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_all);
}
