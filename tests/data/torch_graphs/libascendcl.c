/* The symbols of CANN that torch_npu 2.13.0 asks for, without a device: memory is the host's, operators compute
   nothing, every call says success. Calls are written to the file that ACL_CALLS names, one a line. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int thing, capturing;

static int note(const char *call) {
    const char *path = getenv("ACL_CALLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", call);
        fclose(file);
    }
    return 0;
}

#define A(call) long call(void) { return note(#call); }
A(MsprofGetHashId) A(MsprofRegisterCallback) A(MsprofReportAdditionalInfo) A(MsprofReportApi)
A(MsprofReportCompactInfo) A(MsprofSysCycleTime) A(aclAppLog) A(aclCreateDataBuffer) A(aclCreateTensorDesc)
A(aclDestroyDataBuffer) A(aclDestroyTensorDesc) A(aclFinalize) A(aclGetDeviceCapability)
A(aclGetTensorDescDimV2) A(aclGetTensorDescFormat) A(aclGetTensorDescNumDims) A(aclGetTensorDescType)
A(aclInit) A(aclSetTensorDescName) A(aclSetTensorFormat) A(aclSetTensorPlaceMent) A(aclSetTensorShape)
A(aclmdlFinalizeDump) A(aclmdlInitDump) A(aclmdlSetDump) A(aclopCompileAndExecute) A(aclopCreateAttr)
A(aclopDestroyAttr) A(aclopSetAttrBool) A(aclopSetAttrDataType) A(aclopSetAttrFloat) A(aclopSetAttrInt)
A(aclopSetAttrListBool) A(aclopSetAttrListFloat) A(aclopSetAttrListInt) A(aclopSetAttrListListInt)
A(aclopSetAttrString) A(aclrtBinaryGetFunction) A(aclrtBinaryLoadFromData) A(aclrtDestroyEvent)
A(aclrtDestroyStream) A(aclrtDeviceCanAccessPeer) A(aclrtDeviceEnablePeerAccess) A(aclrtDeviceGetBareTgid)
A(aclrtEventElapsedTime) A(aclrtFreePhysical) A(aclrtGetFunctionAddr) A(aclrtMallocPhysical) A(aclrtMapMem)
A(aclrtMemExportToShareableHandle) A(aclrtMemImportFromShareableHandle) A(aclrtMemSetPidToShareableHandle)
A(aclrtMemset) A(aclrtProcessReport) A(aclrtRecordEvent) A(aclrtReleaseMemAddress) A(aclrtReserveMemAddress)
A(aclrtResetDevice) A(aclrtResetEvent) A(aclrtSetCurrentContext) A(aclrtSetDevice) A(aclrtStreamWaitEvent)
A(aclrtSynchronizeEvent) A(aclrtSynchronizeStream) A(aclrtUnmapMem) A(rtDevBinaryRegister)
A(rtFunctionRegister) A(rtGetC2cCtrlAddr) A(rtKernelLaunch) A(aclrtSetDeviceSatMode) A(aclSetCompileopt)
A(aclrtGetSysParamOpt) A(aclrtSetSysParamOpt) A(aclrtSynchronizeDevice) A(aclrtSynchronizeDeviceWithTimeout)
A(aclrtSynchronizeStreamWithTimeout) A(aclrtSetOpExecuteTimeOut) A(aclrtDestroyStreamForce)
#undef A

const char *aclGetRecentErrMsg(void) { return ""; }
const char *aclrtGetSocName(void) { return "Ascend910B3"; }
int aclrtGetDeviceCount(uint32_t *count) { *count = 1; return 0; }
int aclrtGetDevice(int32_t *device) { *device = 0; return 0; }
int aclrtGetCurrentContext(void **context) { *context = &thing; return 0; }
int aclrtCreateStream(void **stream) { *stream = malloc(64); return 0; }
int aclrtCreateStreamWithConfig(void **stream, uint32_t priority, uint32_t flag) { *stream = malloc(64); return 0; }
int aclrtCreateEventExWithFlag(void **event, uint32_t flag) { *event = malloc(64); return 0; }
int aclrtGetStreamResLimit(void *stream, int kind, uint32_t *value) { *value = 24; return 0; }
int aclrtSetStreamResLimit(void *stream, int kind, uint32_t value) { return 0; }

int aclrtGetMemInfo(int kind, size_t *free, size_t *total) { *free = 1ul << 34; *total = 1ul << 35; return 0; }
int aclrtMalloc(void **address, size_t size, int policy) { *address = malloc(size); return 0; }
int aclrtMallocHost(void **address, size_t size) { *address = malloc(size); return 0; }
int aclrtFree(void *address) { free(address); return 0; }
int aclrtFreeHost(void *address) { free(address); return 0; }
int aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind, void *stream) {
    memcpy(to, from, size);
    return 0;
}

int aclmdlRICaptureBegin(void *stream, int mode) { capturing = 1; return note("aclmdlRICaptureBegin"); }
int aclmdlRICaptureEnd(void *stream, void **graph) {
    capturing = 0;
    *graph = &thing;
    return note("aclmdlRICaptureEnd");
}
int aclmdlRICaptureGetInfo(void *stream, int *status, void **graph) {
    *status = capturing;
    *graph = capturing ? &thing : NULL;
    return 0;
}
int aclmdlRICaptureThreadExchangeMode(int *mode) { return 0; }
int aclmdlRIExecuteAsync(void *graph, void *stream) { return note("aclmdlRIExecuteAsync"); }
int aclmdlRIDestroy(void *graph) { return 0; }
int aclmdlRIGetId(void *graph, uint32_t *id) { *id = 1; return 0; }

void *aclCreateTensor(void) { return &thing; }
void *aclCreateScalar(void) { return &thing; }
void *aclCreateIntArray(void) { return &thing; }
int aclDestroyTensor(void *tensor) { return 0; }
int aclDestroyScalar(void *scalar) { return 0; }
#define OPERATOR(name)                                                                                   \
    int name##GetWorkspaceSize(void *self, void *other, void *out, uint64_t *size, void **executor) {    \
        *size = 0;                                                                                       \
        *executor = &thing;                                                                              \
        return 0;                                                                                        \
    }                                                                                                    \
    int name(void *workspace, uint64_t size, void *executor, void *stream) { return note(#name); }
OPERATOR(aclnnMul)
OPERATOR(aclnnMuls)
