#define OPERATION(x, y) ((x) + (y))
