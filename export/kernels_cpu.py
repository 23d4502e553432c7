"""The kernels of onnxruntime 1.32.0's CPU provider. Generated: ``python -m lazygraph.export.kernels``."""

from __future__ import annotations

# operator, versions, letters of lazygraph.export.kernels.LETTERS per type variable
TABLE = """
Abs 13- T=dfijkluvwx
Acos 7-21 T=f
Acos 22- T=f
Acosh 9-21 T=f
Acosh 22- T=f
Add 13-13 T=dfklwx
Add 14- T=dfijkluvwx
Affine 1- T=f
AffineGrid 20- T1=df T2=l
And 7- T=B T1=B
ArgMax 13- T=dfiklu
ArgMin 13- T=dfiklu
Asin 7-21 T=f
Asin 22- T=f
Asinh 9-21 T=f
Asinh 22- T=f
Atan 7-21 T=f
Atan 22- T=f
Atanh 9-21 T=f
Atanh 22- T=f
Attention 23-23 T1=f T2=f U=Bf
Attention 23-23 T1=h T2=h U=Bh
Attention 24- T1=f T2=f U=Bf
Attention 24- T1=h T2=h U=Bh
AveragePool 11-18 T=f
AveragePool 19-21 T=f
AveragePool 22- T=f
BatchNormalization 9-13 T=df
BatchNormalization 14-14 T=d U=d
BatchNormalization 14-14 T=f U=f
BatchNormalization 15- T=d T1=d T2=d
BatchNormalization 15- T=f T1=f T2=f
BitCast 26- T1=bdfhijkluvwx T2=bdfhijkluvwx
BitShift 11-27 T=uvwx
BitShift 28- T=ijkluvwx
BitwiseAnd 18- T=ijkluvwx
BitwiseNot 18- T=ijkluvwx
BitwiseOr 18- T=ijkluvwx
BitwiseXor 18- T=ijkluvwx
BlackmanWindow 17- T1=kl T2=dfijkluvwx
Cast 13-18 T1=2345BSbdfhijklpqrsuvwx T2=2345BSbdfhijklpqrsuvwx
Cast 19-20 T1=2345BSbdfhijklpqrsuvwx T2=2345BSbdfhijklpqrsuvwx
Cast 21-22 T1=2345BSbdfhijklpqrsuvwx T2=2345BSbdfhijklpqrsuvwx
Cast 23-23 T1=2345BSbdfhijklpqrsuvwx T2=2345BSbdfhijklpqrsuvwx
Cast 24-24 T1=2345BSbdfhijklpqrstuvwx T2=2345BSbdfhijklpqrstuvwx
Cast 25-27 T1=2345BSbdfhijklpqrstuvwx T2=2345BSbdfhijklpqrstuvwx
Cast 28- T1=2345BSbdfhijklpqrstuvwx T2=2345BSbdfhijklpqrstuvwx
Ceil 13- T=df
Celu 12-27 T=f
Celu 28- T=bdfh
Clip 13- T=dfhikluwx
Col2Im 18- T=f
Compress 11-27 T=BSbdfhijkluvwx T1=B
Compress 28- T=BSbdfhijkluvwx T1=B
Concat 13- T=BSbdfhijkluvwx
ConcatFromSequence 11-
ConstantOfShape 9-19 T1=l T2=Bbdfhijkluvwx
ConstantOfShape 20-20 T1=l T2=Bbdfhijklpqrsuvwx
ConstantOfShape 21-22 T1=l T2=Bbdfhijklpqrsuvwx
ConstantOfShape 23-23 T1=l T2=Bbdfhijklpqrsuvwx
ConstantOfShape 24-24 T1=l T2=Bbdfhijklpqrsuvwx
ConstantOfShape 25- T1=l T2=Bbdfhijklpqrsuvwx
Conv 11-21 T=f
Conv 22- T=f
ConvInteger 10- T1=iu T2=iu T3=k
ConvTranspose 11-21 T=f
ConvTranspose 22- T=f
Cos 7-21 T=df
Cos 22- T=df
Cosh 9-21 T=f
Cosh 22- T=f
Crop 1- T=f
CumProd 26- T=dfklwx T2=kl
CumSum 11-13 T=dfkl T2=kl
CumSum 14- T=dfkl T2=kl
DFT 17-19 T1=df T2=kl
DFT 20- T1=df T2=kl
DeformConv 19-21 T=df
DeformConv 22- T=df
DepthToSpace 13-27 T=dfiu
DepthToSpace 28- T=dfiu
DequantizeLinear 13-18 T=iku
DequantizeLinear 19-20 T1=ikpqrsu T2=fh
DequantizeLinear 21-22 T1=45ijkpqrsuv T2=fh
DequantizeLinear 23-23 T1=45ijkpqrsuv T2=fh T3=fh
DequantizeLinear 24-24 T1=45ijkpqrsuv T2=fh T3=fh
DequantizeLinear 25- T1=2345ijkpqrsuv T2=fh T3=fh
Det 11-21 T=f
Det 22- T=f
Div 13-13 T=dfklwx
Div 14- T=dfijkluvwx
Dropout 13-21 T=df T1=df T2=B
Dropout 22- T=df T1=df T2=B
DynamicQuantizeLinear 11- T2=u
DynamicSlice 1- T=BSbdfhijkluvwx Tind=kl
Einsum 12-27 T=dfkl
Einsum 28- T=bdfkl
Elu 6-21 T=f
Elu 22- T=f
Equal 13-18 T=Bdfijkluvwx T1=B
Equal 19- T=BSdfijkluvwx T1=B
Erf 13- T=f
Exp 13- T=df
Expand 13- T=BSdfhijkluvwx
EyeLike 9-21 T1=dfklx T2=dfklx
EyeLike 22- T1=dfklx T2=dfklx
Flatten 13-20 T=BSbdfhijkluvwx
Flatten 21-22 T=BSbdfhijkluvwx
Flatten 23-23 T=BSbdfhijkluvwx
Flatten 24-24 T=BSbdfhijkluvwx
Flatten 25- T=BSbdfhijkluvwx
Floor 13- T=df
GRU 7-13 T=df T1=k
GRU 14-21 T=df T1=k
GRU 22- T=df T1=k
Gather 13- T=BSbdfhijkluvwx Tind=kl
GatherElements 13- T=BSbdfhijkluvwx Tind=kl
GatherND 13- T=BSbdfhijkluvwx indices=l
Gelu 20- T=f
Gemm 13- T=df
GlobalAveragePool 1-21 T=f
GlobalAveragePool 22- T=f
GlobalLpPool 2- T=f
GlobalMaxPool 1-21 T=f
GlobalMaxPool 22- T=f
Greater 13- T=dfijkluvwx T1=B
GreaterOrEqual 12-15 T=dfijkluvwx T1=B
GreaterOrEqual 16- T=dfijkluvwx T1=B
GridSample 16-19 T1=f T2=f
GridSample 20-21 T1=d T2=d
GridSample 20-21 T1=f T2=f
GridSample 22- T1=d T2=d
GridSample 22- T1=f T2=f
HammingWindow 17- T1=kl T2=dfijkluvwx
HannWindow 17- T1=kl T2=dfijkluvwx
HardSigmoid 6-21 T=f
HardSigmoid 22- T=f
Hardmax 13- T=f
Identity 13-13 T=BSbdfhijkluvwx
Identity 14-15 V=BSbdfhijkluvwx
Identity 16-18 V=BSbdfhijkluvwx
Identity 19-20 V=BSbdfhijklpqrsuvwx
Identity 21-22 V=BSbdfhijklpqrsuvwx
Identity 23-23 V=BSbdfhijklpqrsuvwx
Identity 24-24 V=BSbdfhijklpqrsuvwx
Identity 25- V=BSbdfhijklpqrsuvwx
If 13-15 B=B V=BSbdfhijkluvwx
If 16-18 B=B V=BSbdfhijkluvwx
If 19-20 B=B V=BSbdfhijklpqrsuvwx
If 21-22 B=B V=BSbdfhijklpqrsuvwx
If 23-23 B=B V=BSbdfhijklpqrsuvwx
If 24-24 B=B V=BSbdfhijklpqrsuvwx
If 25- B=B V=BSbdfhijklpqrsuvwx
ImageScaler 1- T=f
InstanceNormalization 6-21 T=f
InstanceNormalization 22- T=f
IsInf 10-19 T1=df T2=B
IsInf 20- T1=bdfhpqrs T2=B
IsNaN 13-19 T1=dfh T2=B
IsNaN 20- T1=bdfhpqrs T2=B
LRN 13- T=f
LSTM 7-13 T=df T1=k
LSTM 14-21 T=df T1=k
LSTM 22- T=df T1=k
LayerNormalization 1-16 T=b U=f V=b
LayerNormalization 1-16 T=d U=f V=d
LayerNormalization 1-16 T=f U=f V=f
LayerNormalization 1-16 T=h U=f V=h
LayerNormalization 17- T=bdfh U=f
LeakyRelu 6-15 T=f
LeakyRelu 16- T=f
Less 13- T=dfijkluvwx T1=B
LessOrEqual 12-15 T=dfijkluvwx T1=B
LessOrEqual 16- T=dfijkluvwx T1=B
Log 13- T=df
LogSoftmax 13- T=df
Loop 13-15 B=B I=l V=BSbdfhijkluvwx
Loop 16-18 B=B I=l V=BSbdfhijkluvwx
Loop 19-20 B=B I=l V=BSbdfhijklpqrsuvwx
Loop 21-22 B=B I=l V=BSbdfhijklpqrsuvwx
Loop 23-23 B=B I=l V=BSbdfhijklpqrsuvwx
Loop 24-24 B=B I=l V=BSbdfhijklpqrsuvwx
Loop 25- B=B I=l V=BSbdfhijklpqrsuvwx
LpNormalization 1-21 T=df
LpNormalization 22- T=df
LpPool 11-17 T=f
LpPool 18-21 T=f
LpPool 22- T=f
MatMul 13- T=dfklwx
MatMulInteger 10- T1=iu T2=iu T3=k
Max 13- T=dfhikluwx
MaxPool 12-21 I=l T=dfiu
MaxPool 22- I=l T=dfiu
MaxRoiPool 1- T=f
MaxUnpool 11-21 T1=f T2=l
MaxUnpool 22- T1=f T2=l
Mean 13- T=f
MeanVarianceNormalization 13- T=f
MelWeightMatrix 17- T1=kl T2=f T3=dfijkluvwx
MemcpyFromHost 1- T=Bbdfhijklpqrsuvwx
MemcpyToHost 1- T=Bbdfhijklpqrsuvwx
Min 13- T=dfhikluwx
Mod 13-27 T=dfhijkluvwx
Mod 28- T=dfhijkluvwx
Mul 13-13 T=dfklwx
Mul 14- T=dfijkluvwx
Multinomial 7- T1=f T2=kl
Neg 13- T=dfijkl
NonMaxSuppression 11-
NonZero 13- T=Bfklu
Not 1- T=B
OneHot 11-27 T1=fkl T2=f T3=f
OneHot 11-27 T1=fl T2=l T3=Sl
OneHot 11-27 T1=k T2=k T3=f
OneHot 11-27 T1=l T2=f T3=k
OneHot 11-27 T1=l T2=kl T3=f
OneHot 28- T1=fkl T2=f T3=f
OneHot 28- T1=fl T2=l T3=Sl
OneHot 28- T1=k T2=k T3=bf
OneHot 28- T1=l T2=f T3=k
OneHot 28- T1=l T2=kl T3=f
OneHot 28- T1=l T2=l T3=b
Optional 15- V=BSbdfhijkluvwx
OptionalGetElement 15-17 V=BSbdfhijkluvwx
OptionalGetElement 18- O=BSbdfhijkluvwx V=BSbdfhijkluvwx
OptionalHasElement 15-17 B=B
OptionalHasElement 18- B=B O=BSbdfhijkluvwx
Or 7- T=B T1=B
PRelu 9-15 T=f
PRelu 16- T=f
Pad 13-17 T=Bdfikluwx
Pad 18-18 T=Bdfikluwx
Pad 19-20 T=Bdfikluwx
Pad 21-22 T=Bbdfikluwx
Pad 23-23 T=Bbdfikluwx
Pad 24-24 T=Bbdfikluwx
Pad 25- T=Bbdfikluwx
ParametricSoftplus 1- T=f
Pow 13-14 T=dfkl T1=dfkl
Pow 15- T=dfkl T1=dfkl
QLinearConv 10- T1=i T2=i T3=i T4=k
QLinearConv 10- T1=u T2=iu T3=u T4=k
QLinearMatMul 10-20 T1=i T2=i T3=i
QLinearMatMul 10-20 T1=u T2=iu T3=u
QLinearMatMul 21- T1=i T2=i T3=i TS=f
QLinearMatMul 21- T1=u T2=iu T3=u TS=f
QuantizeLinear 13-18 T1=f T2=iu
QuantizeLinear 19-20 T1=fh T2=ipqrsu
QuantizeLinear 21-22 T1=fh T2=45ijpqrsuv
QuantizeLinear 23-23 T1=fh T2=fh T3=45ijpqrsuv
QuantizeLinear 24-24 T1=fh T2=fh T3=45ijpqrsuv
QuantizeLinear 25- T1=fh T2=fh T3=2345ijpqrsuv
RMSNormalization 23- T=d V=d
RMSNormalization 23- T=f V=f
RMSNormalization 23- T=h V=h
RNN 7-13 T=f T1=k
RNN 14-21 T=f T1=k
RNN 22- T=f T1=k
RandomNormal 1- T=df
RandomNormalLike 1- T1=BSbdfhijkluvwx T2=df
RandomUniform 1- T=df
RandomUniformLike 1- T1=BSbdfhijkluvwx T2=df
Range 11-26 T=dfjkl
Range 27- T=dfjkl
Reciprocal 13- T=df
ReduceL1 13-17 T=dfkl
ReduceL1 18- T=dfkl
ReduceL2 13-17 T=dfkl
ReduceL2 18- T=dfkl
ReduceLogSum 13-17 T=dfkl
ReduceLogSum 18- T=dfkl
ReduceLogSumExp 13-17 T=dfkl
ReduceLogSumExp 18- T=dfkl
ReduceMax 13-17 T=dfiklu
ReduceMax 18-19 T=dfiklu
ReduceMax 20- T=Bdfiklu
ReduceMean 13-17 T=dfkl
ReduceMean 18- T=dfkl
ReduceMin 13-17 T=dfiklu
ReduceMin 18-19 T=dfiklu
ReduceMin 20- T=Bdfiklu
ReduceProd 13-17 T=dfkl
ReduceProd 18- T=dfkl
ReduceSum 13- T=dfkl
ReduceSumSquare 13-17 T=dfkl
ReduceSumSquare 18- T=dfkl
RegexFullMatch 20- T1=S T2=B
Relu 13-13 T=df
Relu 14- T=dfik
Reshape 13-13 T=BSbdfhijkluvwx shape=l
Reshape 14-18 T=BSbdfhijkluvwx shape=l
Reshape 19-20 T=BSbdfhijkluvwx shape=l
Reshape 21-22 T=BSbdfhijklpqrsuvwx shape=l
Reshape 23-23 T=BSbdfhijklpqrsuvwx shape=l
Reshape 24-24 T=BSbdfhijklpqrsuvwx shape=l
Reshape 25- T=BSbdfhijklpqrsuvwx shape=l
Resize 13-17 T1=fiku
Resize 18-18 T1=fiku
Resize 19- T1=fiku
ReverseSequence 10-27 T=BSbdfhijkluvwx
ReverseSequence 28- T=BSbdfhijkluvwx
RoiAlign 10-15 T1=df T2=l
RoiAlign 16- T1=df T2=l
RotaryEmbedding 23- M=l T=fh
Round 11-21 T=dfh
Round 22- T=dfh
STFT 17- T1=df T2=kl
Scale 1- T=f
ScaledTanh 1- T=f
Scan 11-15 V=BSbdfhijkluvwx
Scan 16-18 V=BSbdfhijkluvwx
Scan 19-20 V=BSbdfhijklpqrsuvwx
Scan 21-22 V=BSbdfhijklpqrsuvwx
Scan 23-23 V=BSbdfhijklpqrsuvwx
Scan 24-24 V=BSbdfhijklpqrsuvwx
Scan 25- V=BSbdfhijklpqrsuvwx
ScatterElements 13-15 T=BSbdfhijkluvwx Tind=kl
ScatterElements 16-17 T=BSbdfhijkluvwx Tind=kl
ScatterElements 18- T=BSbdfhijkluvwx Tind=kl
ScatterND 13-15 T=BSbdfhijkluvwx
ScatterND 16-17 T=BSbdfhijkluvwx
ScatterND 18- T=BSbdfhijkluvwx
Selu 6-21 T=f
Selu 22- T=f
SequenceAt 11- I=kl T=BSbdfhijkluvwx
SequenceConstruct 11- T=BSbdfhijkluvwx
SequenceEmpty 11-
SequenceErase 11- I=kl
SequenceInsert 11- I=kl
SequenceLength 11- I=l
Shape 13-14 T=BSbdfhijkluvwx T1=l
Shape 15-18 T=BSbdfhijkluvwx T1=l
Shape 19-20 T=BSbdfhijkluvwx T1=l
Shape 21-22 T=BSbdfhijklpqrsuvwx T1=l
Shape 23-23 T=BSbdfhijklpqrsuvwx T1=l
Shape 24-24 T=BSbdfhijklpqrsuvwx T1=l
Shape 25- T=BSbdfhijklpqrsuvwx T1=l
Shrink 9- T=bdfhijkluvwx
Sigmoid 13- T=df
Sign 13- T=bdfhijkluvwx
SimplifiedLayerNormalization 1- T=b U=f V=b
SimplifiedLayerNormalization 1- T=d U=f V=d
SimplifiedLayerNormalization 1- T=f U=f V=f
SimplifiedLayerNormalization 1- T=h U=f V=h
Sin 7-21 T=df
Sin 22- T=df
Sinh 9-21 T=f
Sinh 22- T=f
Size 13-18 T=BSdfijkluvwx T1=l
Size 19-20 T=BSdfijkluvwx T1=l
Size 21-22 T=BSdfijkluvwx T1=l
Size 23-23 T=BSdfijkluvwx T1=l
Size 24-24 T=BSdfijkluvwx T1=l
Size 25- T=BSdfijkluvwx T1=l
Slice 13- T=BSbdfhijkluvwx Tind=kl
Softmax 13- T=df
Softplus 1-21 T=f
Softplus 22- T=f
Softsign 1-21 T=f
Softsign 22- T=f
SpaceToDepth 13-27 T=dfiu
SpaceToDepth 28- T=dfiu
Split 13-17 T=BSbdfhijkluvwx
Split 18- T=BSbdfhijkluvwx
SplitToSequence 11-23 I=kl T=BSdfhkl
SplitToSequence 24- I=kl T=BSdfhkl
Sqrt 13- T=df
Squeeze 13-20 T=BSbdfhijkluvwx
Squeeze 21-22 T=BSbdfhijkluvwx
Squeeze 23-23 T=BSbdfhijkluvwx
Squeeze 24-24 T=BSbdfhijkluvwx
Squeeze 25- T=BSbdfhijkluvwx
StringConcat 20- T=S
StringNormalizer 10- X=S
StringSplit 20- T1=S T2=S T3=l
Sub 13-13 T=dfklwx
Sub 14- T=dfijkluvwx
Sum 13- T=df
Tan 7-21 T=f
Tan 22- T=f
Tanh 13- T=df
TensorScatter 24- T=Bbdfhijkluvwx
TfIdfVectorizer 9- T=Skl T1=f
ThresholdedRelu 10-21 T=f
ThresholdedRelu 22- T=f
Tile 13- T=BSdfijkluvwx T1=l
TopK 11-23 I=l T=dfijklu
TopK 24- I=l T=dfijklu
Transpose 13-20 T=BSbdfhijkluvwx
Transpose 21-22 T=45BSbdfhijklpqrsuvwx
Transpose 23-23 T=45BSbdfhijklpqrsuvwx
Transpose 24-24 T=45BSbdfhijklpqrsuvwx
Transpose 25- T=2345BSbdfhijklpqrsuvwx
Trilu 14- T=Bdfkl
Unique 11-27 T=Sdfil
Unique 28- T=Sbdfil
Unsqueeze 13-20 T=BSbdfhijkluvwx
Unsqueeze 21-22 T=BSbdfhijkluvwx
Unsqueeze 23-23 T=BSbdfhijkluvwx
Unsqueeze 24-24 T=BSbdfhijkluvwx
Unsqueeze 25- T=BSbdfhijkluvwx
Where 9-15 T=Sdfikluw
Where 16- T=Sdfikluw
Xor 7- T=B T1=B
ai.onnx.ml:ArrayFeatureExtractor 1- T=Sdfkl
ai.onnx.ml:Binarizer 1- T=f
ai.onnx.ml:CastMap 1- T2=Sfl
ai.onnx.ml:CategoryMapper 1- T1=Sl T2=Sl
ai.onnx.ml:DictVectorizer 1- T2=Sdfl
ai.onnx.ml:FeatureVectorizer 1- T1=dfkl
ai.onnx.ml:Imputer 1- T=fl
ai.onnx.ml:LabelEncoder 1-1 T1=Sl T2=Sl
ai.onnx.ml:LabelEncoder 2-3 T1=Sfl T2=Sfl
ai.onnx.ml:LabelEncoder 4- T1=S T2=Sdjl
ai.onnx.ml:LabelEncoder 4- T1=Sl T2=f
ai.onnx.ml:LabelEncoder 4- T1=dl T2=Sdl
ai.onnx.ml:LabelEncoder 4- T1=f T2=Sfl
ai.onnx.ml:LinearClassifier 1- T1=dfkl T2=Sl
ai.onnx.ml:LinearRegressor 1- T=f
ai.onnx.ml:Normalizer 1- T=dfkl
ai.onnx.ml:OneHotEncoder 1- T=Sdfl
ai.onnx.ml:SVMClassifier 1- T1=dfkl T2=Sl
ai.onnx.ml:SVMRegressor 1- T=f
ai.onnx.ml:Scaler 1- T=dfkl
ai.onnx.ml:TreeEnsemble 5- T=df
ai.onnx.ml:TreeEnsembleClassifier 1-2 T1=dfkl T2=Sl
ai.onnx.ml:TreeEnsembleClassifier 3- T1=dfkl T2=Sl
ai.onnx.ml:TreeEnsembleRegressor 1-2 T=df
ai.onnx.ml:TreeEnsembleRegressor 3- T=df
ai.onnx.ml:ZipMap 1-
com.microsoft:Attention 1- T=f
com.microsoft:AttnLSTM 1- T=df T1=k
com.microsoft:BeamSearch 1- T=f
com.microsoft:BiasGelu 1- T=f
com.microsoft:BifurcationDetector 1- T=l
com.microsoft:BranchwiseRMSNorm 1- M=bfh T=bfh
com.microsoft:CDist 1- T=df
com.microsoft:CausalConvWithState 1- T=f
com.microsoft:ConvTransposeWithDynamicPads 1- T=f
com.microsoft:CropAndResize 1- T1=f T2=k
com.microsoft:DecoderMaskedMultiHeadAttention 1- T=f
com.microsoft:DequantizeLinear 1- T1=45ijkuv T2=f
com.microsoft:DynamicQuantizeLSTM 1- T=f T1=k T2=iu
com.microsoft:DynamicQuantizeMatMul 1- T1=f T2=iu
com.microsoft:DynamicTimeWarping 1- F=f I=k
com.microsoft:EmbedLayerNormalization 1- T=f
com.microsoft:EngramGate 1- T=fh
com.microsoft:ExpandDims 1- T=BSbdfhijkluvwx axis=k
com.microsoft:FastGelu 1- T=f
com.microsoft:FusedConv 1- T=f
com.microsoft:FusedGemm 1- T=f
com.microsoft:FusedMatMul 1- T=df
com.microsoft:GatedAdd 1- T=fh
com.microsoft:GatedDeltaNet 1- T=bfh TG=bfh TI=k TS=f
com.microsoft:GatedRMSNorm 1- T=bfh
com.microsoft:GatherBlockQuantized 1- T1=45pqrsuy T2=fh Tind=kl
com.microsoft:GatherND 1- T=BSbdfhijkluvwx Tind=kl
com.microsoft:GatherPacked 1- T1=u T2=bfh Tind=kl
com.microsoft:Gelu 1- T=f
com.microsoft:GreedySearch 1- T=f
com.microsoft:GridSample 1- T1=f T2=f
com.microsoft:GroupQueryAttention 1- M=k T=f T_CACHE=fiu T_KV_SCALE=f
com.microsoft:GroupQueryAttention 1- M=k T=h T_CACHE=hiu T_KV_SCALE=f
com.microsoft:HyperConnectionPostMix 1- M=bfh T=bfh
com.microsoft:HyperConnectionPreMix 1- M=bfh T=bfh
com.microsoft:Inverse 1- T=dfh
com.microsoft:LinearAttention 1- T=f
com.microsoft:LinearAttentionGate 1- T=bfh TF=f
com.microsoft:MRotaryEmbedding 1- M=l T=fh
com.microsoft:MatMulBnb4 1- T1=f T2=u
com.microsoft:MatMulFpQ4 1- T1=f T2=u T3=l
com.microsoft:MatMulInteger16 1- T1=j T2=j T3=k
com.microsoft:MatMulIntegerToFloat 1- T1=i T2=i T3=f
com.microsoft:MatMulIntegerToFloat 1- T1=u T2=iu T3=f
com.microsoft:MatMulNBits 1- T1=f T2=u T3=fu T4=k
com.microsoft:MatMulNBits 1- T1=h T2=u T3=hu T4=k
com.microsoft:MaxpoolWithMask 1- T=f
com.microsoft:MoE 1- T=f
com.microsoft:MoEGroupRouter 1- T=bfh TF=f
com.microsoft:MultiHeadAttention 1- T=f
com.microsoft:MurmurHash3 1- T1=Sdfklwx T2=kw
com.microsoft:NGramHashMapping 1- M=kl
com.microsoft:NGramRepeatBlock 1- T=f Tid=l
com.microsoft:NhwcMaxPool 1- T=iu
com.microsoft:Pad 1- T=f
com.microsoft:QAttention 1- T1=u T2=iu T3=f T4=k
com.microsoft:QEmbedLayerNormalization 1- T=f
com.microsoft:QGemm 1- T=f TA=i TB=i TC=k TY=fi TYZ=i
com.microsoft:QGemm 1- T=f TA=u TB=iu TC=k TY=fu TYZ=u
com.microsoft:QLinearAdd 1- T=iu
com.microsoft:QLinearAveragePool 1-
com.microsoft:QLinearConcat 1-
com.microsoft:QLinearConv 1- T1=i T2=i T3=i T4=k
com.microsoft:QLinearConv 1- T1=u T2=iu T3=u T4=k
com.microsoft:QLinearGlobalAveragePool 1-
com.microsoft:QLinearLeakyRelu 1- T=iu
com.microsoft:QLinearMul 1- T=iu
com.microsoft:QLinearSigmoid 1- T=iu
com.microsoft:QLinearSoftmax 1- T=iu
com.microsoft:QLinearWhere 1- T=iu
com.microsoft:QMoE 1- T=b T1=u T2=bpt T4=f
com.microsoft:QMoE 1- T=f T1=u T2=fpt T4=f
com.microsoft:QMoE 1- T=h T1=u T2=hpt T4=f
com.microsoft:QuantizeLinear 1- T1=f T2=45ijuv
com.microsoft:QuickGelu 1- T=f
com.microsoft:Range 1- T=dfjkl
com.microsoft:RotaryEmbedding 1- M=l T=fh
com.microsoft:SampleOp 1- T=f
com.microsoft:Sampling 1- T=f
com.microsoft:ScaledSiLU 1- M=bfh T=bfh
com.microsoft:SkipLayerNormalization 1- T=bdfh
com.microsoft:SkipSimplifiedLayerNormalization 1- T=bdfh
com.microsoft:SparseAttention 1- M=k T=fh
com.microsoft:SparseToDenseMatMul 1- T1=dfklwx
com.microsoft:Tokenizer 1- T=S
com.microsoft:TransposeMatMul 1- T=f
com.microsoft:Trilu 1- T=dfl
com.microsoft:UnfoldTensor 1- T=BSbdfhijkluvwx
com.microsoft:Unique 1- T=f
com.microsoft:VarlenCausalConvWithState 1- M=k T=bfh
com.microsoft:VarlenNGramHashMapping 1- M=kl S=k
com.microsoft:WhisperBeamSearch 1- T=f
com.microsoft:WordConvEmbedding 1- T=k T1=f
"""
