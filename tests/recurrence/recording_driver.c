// A libcuda that needs no GPU: launches do nothing but record their grid and arguments.
// For recorded_launches.py. Signatures as in cuda.h, with plain types.
#include <string.h>

enum { SUCCESS, MOST = 512 };
enum { WARP_SIZE = 10, MAX_REGISTERS = 12, MAX_SHARED_MEMORY = 97 };  // of a device
enum { MAX_THREADS = 0 };                                             // of a function

static int count, sizes[MOST], launches;
static unsigned grid[3];
static unsigned long long arguments[MOST];

// Sets the number of arguments of the next launches, and the bytes of each.
void expect_arguments(int n, const int* bytes) {
  count = n;
  memcpy(sizes, bytes, n * sizeof(int));
}

// Copies the last launch. Returns the number of launches since the last call.
int last_launch(unsigned long long* to, unsigned* to_grid) {
  int n = launches;
  launches = 0;
  memcpy(to, arguments, sizeof(arguments));
  memcpy(to_grid, grid, sizeof(grid));
  return n;
}

// A configuration starts with the three sizes of the grid.
int cuLaunchKernelEx(const unsigned* config, void* function, void** parameters, void** extra) {
  memcpy(grid, config, sizeof(grid));
  memset(arguments, 0, sizeof(arguments));
  for (int i = 0; i < count; ++i) memcpy(&arguments[i], parameters[i], sizes[i]);
  ++launches;
  return SUCCESS;
}

int cuPointerGetAttribute(unsigned long long* value, int attribute, unsigned long long pointer) {
  *value = pointer;
  return SUCCESS;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == MAX_SHARED_MEMORY ? 232448
           : attribute == MAX_REGISTERS   ? 65536
           : attribute == WARP_SIZE       ? 32
                                          : 1;
  return SUCCESS;
}

int cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = attribute == MAX_THREADS ? 1024 : 0;
  return SUCCESS;
}

int cuCtxGetCurrent(void** context) {
  *context = arguments;  // anything but null
  return SUCCESS;
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return SUCCESS;
}

int cuGetErrorString(int error, const char** text) {
  *text = "no error";
  return SUCCESS;
}

// Called by Triton, but with nothing to do here.
int cuCtxGetLimit(void) { return SUCCESS; }
int cuCtxSetCurrent(void) { return SUCCESS; }
int cuCtxSetLimit(void) { return SUCCESS; }
int cuDeviceGet(void) { return SUCCESS; }
int cuDevicePrimaryCtxRetain(void) { return SUCCESS; }
int cuFuncSetAttribute(void) { return SUCCESS; }
int cuFuncSetCacheConfig(void) { return SUCCESS; }
int cuModuleGetFunction(void) { return SUCCESS; }
int cuModuleLoadData(void) { return SUCCESS; }
