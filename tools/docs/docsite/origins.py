"""Who proposed each function: facts about publications. A function without an entry has its own sentence."""

from __future__ import annotations

# The stems of the five papers, where a function is from one of them, else the reference in words.
_SMELU = ("smelu", "asymmetric_smelu", "leaky_smelu", "shifted_smelu", "generalized_smelu", "origin_smelu")
PAPER_OF = dict.fromkeys((*_SMELU, "sigmoid_rescu"), "smelu") | {
    "srelu": "mollification",
    "lambda_gelu": "lambda_gelu",
    "crrelu": "eafo",
    "crrelu_exact": "eafo",
    "squaf": "squaf",
}

REFERENCES = {
    "relu": "K. Fukushima, *Visual feature extraction by a multilayered network of analog threshold elements*, 1969; "
    "made popular by V. Nair and G. Hinton, *Rectified linear units improve restricted Boltzmann machines*, 2010.",
    "leaky_relu": "A. Maas, A. Hannun and A. Ng, *Rectifier nonlinearities improve neural network acoustic models*, "
    "2013.",
    "prelu": "K. He, X. Zhang, S. Ren and J. Sun, *Delving deep into rectifiers*, 2015.",
    "relu6": "A. Krizhevsky, *Convolutional deep belief networks on CIFAR-10*, 2010; known from A. Howard and others, "
    "*MobileNets*, 2017.",
    "rrelu": "B. Xu, N. Wang, T. Chen and M. Li, *Empirical evaluation of rectified activations in convolutional "
    "network*, 2015.",
    "hardsigmoid": "M. Courbariaux, Y. Bengio and J.-P. David, *BinaryConnect*, 2015; with slope 1/6 from A. Howard "
    "and others, *Searching for MobileNetV3*, 2019.",
    "sparse_sigmoid": "A. Martins and R. Astudillo, *From softmax to sparsemax*, 2016, for two classes.",
    "laplace": "X. Ma and others, *Mega: moving average equipped gated attention*, 2023.",
    "gelu_10": "H. Wu and others, *Integer quantization for deep learning inference*, 2020.",
    "quick_gelu": "D. Hendrycks and K. Gimpel, *Gaussian error linear units*, 2016, as the quickest form of GELU.",
    "squareplus": "J. Barron, *Squareplus: a softplus-like algebraic rectifier*, 2021.",
    "softshrink": "D. Donoho, *De-noising by soft-thresholding*, 1995.",
    "hardshrink": "D. Donoho and I. Johnstone, *Ideal spatial adaptation by wavelet shrinkage*, 1994.",
    "threshold": "K. Konda, R. Memisevic and D. Krueger, *Zero-bias autoencoders and the benefits of co-adapting "
    "features*, 2014, with the value 0.",
    "relu2": "D. So and others, *Primer: searching for efficient transformers for language modeling*, 2021.",
    "star_relu": "W. Yu and others, *MetaFormer baselines for vision*, 2022.",
    "xielu": "A. Huang and I. Schlag, *Deriving activation functions using integration*, 2024.",
    "hardtanh": "R. Collobert, *Large scale machine learning* (thesis), 2004.",
    "hardswish": "A. Howard and others, *Searching for MobileNetV3*, 2019.",
    "elu": "D.-A. Clevert, T. Unterthiner and S. Hochreiter, *Fast and accurate deep network learning by exponential "
    "linear units*, 2016.",
    "celu": "J. Barron, *Continuously differentiable exponential linear units*, 2017.",
    "selu": "G. Klambauer, T. Unterthiner, A. Mayr and S. Hochreiter, *Self-normalizing neural networks*, 2017.",
    "softplus": "C. Dugas, Y. Bengio and others, *Incorporating second-order functional knowledge for better option "
    "pricing*, 2001.",
    "swish": "S. Elfwing, E. Uchibe and K. Doya, *Sigmoid-weighted linear units*, 2017; P. Ramachandran, B. Zoph and "
    "Q. Le, *Searching for activation functions*, 2017.",
    "gelu": "D. Hendrycks and K. Gimpel, *Gaussian error linear units*, 2016.",
    "gelu_tanh": "D. Hendrycks and K. Gimpel, *Gaussian error linear units*, 2016, as the quick form of GELU.",
    "mish": "D. Misra, *Mish: a self regularized non-monotonic activation function*, 2019.",
    "tanhexp": "X. Liu and X. Di, *TanhExp: a smooth activation function with high convergence speed*, 2020.",
    "tanh": "Older than the field; the case for it in networks is made by Y. LeCun and others, *Efficient BackProp*, "
    "1998.",
    "sigmoid": "Older than the field; used by D. Rumelhart, G. Hinton and R. Williams, *Learning representations by "
    "back-propagating errors*, 1986.",
    "softsign": "J. Turian, J. Bergstra and Y. Bengio, *Quadratic features and deep architectures for chunking*, 2009.",
    "smooth_relu": "C. Xie, M. Tan, B. Gong, A. Yuille and Q. Le, *Smooth adversarial training*, 2020.",
}
