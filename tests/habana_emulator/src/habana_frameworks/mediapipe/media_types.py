"""Types and enumerations."""


class dtype:
    NDT = ""
    UINT8 = "uint8"
    UINT32 = "uint32"
    INT32 = "int32"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class ftype:
    BI_LINEAR = 3
    BICUBIC = 4


class imgtype:
    RGB_I = "rgb-i"
    RGB_P = "rgb-p"


class readerOutType:
    FILE_LIST = 0
    BUFFER_LIST = 1
    ADDRESS_LIST = 2


class randomCropType:
    NO_RANDOM_CROP = 0
    RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP = 1
    RANDOMIZED_ASPECT_RATIO_CROP = 2
    CENTER_CROP = 3
